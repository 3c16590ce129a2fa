"""The job's record: what the four scripts promise, call by call. (In any order: test_jobs_machine.py.)"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from app import errors
from app.errors import TooManyJobs
from app.jobs.job import Job, JobLimits, Keys, Submission
from app.jobs.job_store import Claim, Jobs, Refusal
from app.jobs.options import CaptionOptions
from app.jobs.queue import NOT_YET, Queue, ensure_groups, waiting
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from tests.app.played_time import pass_time

CAUSE = errors.WorkerLost("The worker fell silent 3 times while it ran this job.")


@pytest.fixture
def queue(server: redis.Redis, jobs: Jobs, keys: Keys) -> Queue:
    opened = Queue(server, "w1", lease=jobs.lease, keys=keys)
    opened.open()
    return opened


def submit(jobs: Jobs, job_id: str = "") -> str:
    job_id = job_id or uuid.uuid4().hex
    return jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", filename="a.mp4").id


def claim(jobs: Jobs, job_id: str, worker: str = "w1", *, is_shared: bool = False) -> Claim:
    taken = try_claim(jobs, job_id, worker, is_shared=is_shared)
    assert isinstance(taken, Claim)
    return taken


def try_claim(jobs: Jobs, job_id: str, worker: str = "w1", *, is_shared: bool = False) -> Claim | Refusal:
    job = jobs.get(job_id)
    assert job is not None
    return jobs.claim(job_id, job.entry, job.priority, worker, cause=CAUSE, is_shared=is_shared)


def test_a_submitted_job_waits(jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys) -> None:
    job_id = submit(jobs)
    job = jobs.get(job_id)
    assert job is not None
    assert (job.state, job.attempt, job.progress, job.stage) == ("queued", 0, 0, None)
    assert (job.filename, job.options, job.error) == ("a.mp4", CaptionOptions(), None)
    assert abs(job.created_at - time.time()) < 5
    assert waiting(server, keys) == 1


def test_submitting_twice_makes_one_job(jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys) -> None:
    submit(jobs, "same")
    submit(jobs, "same")
    assert waiting(server, keys) == 1


def test_from_offer_to_answer(jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys) -> None:
    job_id = submit(jobs)
    (offer,) = queue.take(4)
    assert (offer.job_id, offer.priority, offer.is_recovered) == (job_id, "normal", False)
    attempt = claim(jobs, job_id)
    assert jobs.beat(attempt, "extract", 0.5, {"sampled": [0.5]}) == "go"
    running = jobs.get(job_id)
    assert running is not None
    assert (running.state, running.stage, running.progress) == ("running", "extract", 0.5)
    assert running.answer == {"sampled": [0.5]}
    assert jobs.succeed(attempt, {"caption": "a dog", "timings": {"decode": 0.1}})
    succeeded = jobs.get(job_id)
    assert succeeded is not None
    assert (succeeded.state, succeeded.stage, succeeded.progress, succeeded.attempt) == (
        "succeeded",
        None,
        1,
        1,
    )
    assert succeeded.answer["caption"] == "a dog"
    assert succeeded.timings["decode"] == 0.1
    assert succeeded.timings["total"] == pytest.approx(succeeded.timings["queue"], abs=5)
    assert server.xlen(keys.stream("normal")) == 0
    assert queue.take(4, block=0.01) == []


def test_an_old_token_changes_nothing(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    queue.take(1)
    late = claim(jobs, job_id)
    pass_time(jobs.server, jobs.keys, jobs.lease + 0.1)
    newer = claim(jobs, job_id, "w2")
    assert newer.job.attempt == 2
    assert jobs.beat(late, "caption", 0.9) == "lost"
    assert not jobs.succeed(late, {"caption": "late"})
    assert not jobs.hand_back(late)
    assert jobs.succeed(newer, {"caption": "newer"})
    assert not jobs.succeed(late, {"caption": "late"})
    job = jobs.get(job_id)
    assert job is not None
    assert job.answer["caption"] == "newer"


def test_the_reply_to_finish_may_be_lost(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    attempt = claim(jobs, job_id)
    assert jobs.succeed(attempt, {"caption": "once"})
    assert jobs.succeed(attempt, {"caption": "twice"})
    job = jobs.get(job_id)
    assert job is not None
    assert job.answer["caption"] == "once"


def test_a_good_lease_keeps_others_out(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    attempt = claim(jobs, job_id)
    for _ in range(4):
        pass_time(jobs.server, jobs.keys, jobs.lease / 2)
        assert jobs.beat(attempt, "decode", 0.1) == "go"
        assert try_claim(jobs, job_id, "w2") == Refusal(job_id, "busy")


def test_beats_hold_off_recovery_and_silence_brings_it(
    jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys
) -> None:
    job_id = submit(jobs)
    queue.take(1)
    attempt = claim(jobs, job_id)
    other = Queue(server, "w2", lease=jobs.lease, keys=keys)
    for _ in range(3):
        pass_time(server, keys, jobs.lease * 0.6)
        jobs.beat(attempt, "decode", 0.1)
        other._looked_at = NOT_YET  # now and then; here, now
        assert other.take(1, block=0.01) == []
    pass_time(server, keys, jobs.lease + 0.1)
    other._looked_at = NOT_YET
    submit(jobs)  # a backlog does not delay recovery
    (offer,) = other.take(4)
    assert (offer.job_id, offer.is_recovered) == (job_id, True)


def test_attempts_are_bounded(jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys) -> None:
    job_id = submit(jobs)
    queue.take(1)
    last = claim(jobs, job_id)
    for attempt in (2, 3):
        again = jobs.claim_again(last, CAUSE)
        assert isinstance(again, Claim)
        assert again.job.attempt == attempt
        last = again
    assert jobs.claim_again(last, CAUSE) == Refusal(job_id, "exhausted")
    job = jobs.get(job_id)
    assert job is not None
    assert (job.state, job.attempt) == ("failed", 3)
    assert job.error == {"code": "worker_lost", "message": str(CAUSE), "hint": CAUSE.hint}
    assert server.xlen(keys.stream("normal")) == 0


def test_attempts_that_gained_something_are_not_counted(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    last = claim(jobs, job_id)
    for _ in range(5):
        assert jobs.beat(last, "caption", 0.2, has_gained=True) == "go"
        again = jobs.claim_again(last, CAUSE)
        assert isinstance(again, Claim)
        assert again.job.attempt == 1
        last = again
    for attempt in (2, 3):
        assert jobs.beat(last, "caption", 0.2) == "go"
        counted = jobs.claim_again(last, CAUSE)
        assert isinstance(counted, Claim)
        assert counted.job.attempt == attempt
        last = counted
    assert jobs.claim_again(last, CAUSE) == Refusal(job_id, "exhausted")


def test_a_worker_that_dies_of_something_else_costs_no_attempt(
    jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys
) -> None:
    """Where the job only waited in its hands; and one that was worked on pays as ever."""
    job_id = submit(jobs)
    job = jobs.get(job_id)
    assert job is not None

    def claimed_after_a_loss() -> Claim:
        pass_time(server, keys, jobs.lease + 0.1)
        taken = jobs.claim(job_id, job.entry, job.priority, "w", cause=CAUSE, waits=True)
        assert isinstance(taken, Claim)
        return taken

    attempts = [claimed_after_a_loss().job.attempt for _ in range(5)]
    assert attempts == [1] * 5
    last = claimed_after_a_loss()
    assert jobs.beat(last, "decode", 0.1, is_at_work=True) == "go"
    last = claimed_after_a_loss()
    assert last.job.attempt == 2
    assert jobs.beat(last, "decode", 0.1, is_at_work=True) == "go"
    assert jobs.beat(last, "caption", 0.1, is_at_work=False) == "go"
    assert claimed_after_a_loss().job.attempt == 2


def test_a_last_attempt_that_gained_something_is_followed_by_another(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    attempt: Claim | Refusal = claim(jobs, job_id)
    for _ in range(2):
        assert isinstance(attempt, Claim)
        attempt = jobs.claim_again(attempt, CAUSE)
    assert isinstance(attempt, Claim)
    assert jobs.beat(attempt, "caption", 0.2, has_gained=True) == "go"
    last = jobs.claim_again(attempt, CAUSE)
    assert isinstance(last, Claim)
    assert last.job.attempt == 3


def test_one_that_gained_something_and_is_handed_back_begins_as_the_first(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    attempt = claim(jobs, job_id)
    assert jobs.beat(attempt, "caption", 0.2, has_gained=True) == "go"
    assert jobs.hand_back(attempt)
    assert claim(jobs, job_id, "w2").job.attempt == 1


def test_a_dead_batch_costs_no_attempt_once(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    in_batch = claim(jobs, job_id, is_shared=True)
    alone = jobs.claim_again(in_batch, CAUSE)
    assert isinstance(alone, Claim)
    assert (in_batch.job.attempt, alone.job.attempt) == (1, 1)
    counted = jobs.claim_again(alone, CAUSE)
    assert isinstance(counted, Claim)
    assert counted.job.attempt == 2
    assert jobs.beat(in_batch, "extract", 0.2) == "lost"


def test_a_job_handed_back_is_next_and_loses_no_attempt(
    jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys
) -> None:
    job_id = submit(jobs)
    queue.take(1)
    attempt = claim(jobs, job_id)
    submit(jobs)
    assert jobs.hand_back(attempt)
    assert jobs.beat(attempt, "decode", 0.1) == "lost"
    (offer,) = Queue(server, "w2", lease=jobs.lease, keys=keys).take(4)
    assert (offer.job_id, offer.is_recovered) == (job_id, True)
    assert claim(jobs, job_id, "w2").job.attempt == 1


def test_canceling_a_waiting_job(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    assert jobs.cancel(job_id) == "done"
    assert jobs.cancel(job_id) == "over"
    assert queue.take(1, block=0.01) == []
    job = jobs.get(job_id)
    assert job is not None
    assert job.state == "canceled"


def test_canceling_a_running_job(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    attempt = claim(jobs, job_id)
    assert jobs.cancel(job_id) == "asked"
    assert jobs.beat(attempt, "extract", 0.3) == "canceled"
    assert jobs.stop(attempt)
    assert not jobs.succeed(attempt, {"caption": "too late"})
    job = jobs.get(job_id)
    assert job is not None
    assert job.state == "canceled"


@pytest.mark.parametrize("how", ["succeeds", "fails"])
def test_an_acknowledged_cancellation_goes_before_any_end(jobs: Jobs, how: str) -> None:
    job_id = submit(jobs)
    attempt = claim(jobs, job_id)
    assert jobs.cancel(job_id) == "asked"
    error = CAUSE
    for _ in range(2):  # a repeated call changes nothing
        assert not (
            jobs.succeed(attempt, {"caption": "late"}) if how == "succeeds" else jobs.fail(attempt, error)
        )
    job = jobs.get(job_id)
    assert job is not None
    assert (job.state, job.answer, job.error) == ("canceled", {}, None)
    assert jobs.stop(attempt)


def test_files_whose_results_went_are_told_of(jobs: Jobs) -> None:
    job_id = submit(jobs)
    assert jobs.succeed(claim(jobs, job_id), {"caption": "a cat"}, "ab" * 32)
    assert jobs.forgotten_since(0)[0] == []
    assert jobs.expire(job_id)
    digests, now = jobs.forgotten_since(0)
    assert digests == ["ab" * 32]
    assert jobs.forgotten_since(now + 1)[0] == []


def test_a_canceled_job_whose_worker_died_does_not_run_again(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs)
    claim(jobs, job_id)
    jobs.cancel(job_id)
    pass_time(jobs.server, jobs.keys, jobs.lease + 0.1)
    assert try_claim(jobs, job_id, "w2") == Refusal(job_id, "canceled")


def test_results_expire(server: redis.Redis, keys: Keys) -> None:
    brief = Jobs(server, attempts=3, lease=5, result_ttl=20, keys=keys)
    ensure_groups(server, keys)
    job_id = submit(brief)
    assert brief.succeed(claim(brief, job_id), {"caption": "short-lived"})
    assert brief.due() == []
    server.zincrby(keys.expiry, -20, job_id)  # as 20 seconds later
    assert brief.due() == [job_id]
    assert brief.expire(job_id)
    job = brief.get(job_id)
    assert job is not None
    assert (job.state, job.answer) == ("expired", {})
    assert brief.due() == []
    assert not brief.expire(job_id)
    assert 0 < server.ttl(keys.job(job_id)) <= 20


def test_high_goes_before_low(jobs: Jobs, queue: Queue) -> None:
    for priority in ("low", "normal", "high"):
        jobs.submit(priority, CaptionOptions(), "uploads/x", priority=priority)
    assert [queue.take(1)[0].job_id for _ in range(3)] == ["high", "normal", "low"]


def test_a_large_answer_is_refused(jobs: Jobs, queue: Queue) -> None:
    attempt = claim(jobs, submit(jobs))
    with pytest.raises(ValueError, match="belongs into a blob"):
        jobs.succeed(attempt, {"caption": "x" * 70_000})


def test_an_emptied_server_gets_its_groups_again(
    jobs: Jobs, queue: Queue, server: redis.Redis, keys: Keys
) -> None:
    server.delete(*(keys.stream(priority) for priority in ("high", "normal", "low")))
    assert queue.take(1, block=0.01) == []
    job_id = submit(jobs)
    assert queue.take(1)[0].job_id == job_id


def test_a_job_that_is_not_on_disk_is_not_accepted(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, connect(server.url, patience=5) as client:
        client.config_set("appendfsync", "no")
        jobs = Jobs(client, attempts=3, lease=1, result_ttl=60)
        with pytest.raises(errors.NotOnDisk):
            submit(jobs, "x")
        withdrawn = jobs.get("x")
        assert withdrawn is not None
        assert withdrawn.state == "canceled"
        client.config_set("appendonly", "no")
        assert (
            submit(jobs, "y") == "y"
        )  # a server without a file cannot promise, and is told about in the log


def test_no_redis_is_said_by_name() -> None:
    with connect("unix:///nowhere/redis.sock", patience=0.2) as nowhere:
        away = Jobs(nowhere, attempts=3, lease=1, result_ttl=1)
        with pytest.raises(errors.QueueUnavailable):
            away.get("x")
        with pytest.raises(errors.QueueUnavailable):
            submit(away)


# ---- how many of one owner ----


def _submit_as(jobs: Jobs, owner: str, job_id: str, most: int = 2) -> Job:
    submission = Submission(owner=owner, limits=JobLimits(concurrent=most))
    return jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", submission=submission)


def test_an_owner_has_only_so_many_jobs_at_once(jobs: Jobs) -> None:
    for owner in ("ada", "eve"):
        for number in range(2):
            _submit_as(jobs, owner, f"{owner}{number}")
        with pytest.raises(TooManyJobs):
            _submit_as(jobs, owner, f"{owner}2")
        with pytest.raises(TooManyJobs):
            jobs.check_concurrency(owner, JobLimits(concurrent=2))
        assert jobs.get(f"{owner}2") is None
    assert waiting(jobs.server, jobs.keys) == 4
    jobs.check_concurrency("ada", JobLimits(concurrent=3))
    jobs.check_concurrency("ada", JobLimits(seconds=1))
    jobs.check_concurrency(None, JobLimits(concurrent=1))


def test_a_job_counts_until_it_is_over_or_lost(jobs: Jobs) -> None:
    for name in ("canceled", "lost"):
        _submit_as(jobs, "ada", name)
    jobs.cancel("canceled")
    _submit_as(jobs, "ada", "third")
    jobs.server.delete(jobs.keys.job("lost"))
    _submit_as(jobs, "ada", "fourth")
    with pytest.raises(TooManyJobs):
        _submit_as(jobs, "ada", "fifth")
    assert jobs.server.smembers(jobs.keys.active("ada")) == {"third", "fourth"}


def test_a_repeated_submission_is_one_job_and_counts_once(jobs: Jobs) -> None:
    for _ in range(3):
        assert _submit_as(jobs, "ada", "same", most=1).id == "same"


def test_of_many_submissions_at_once_no_more_are_taken(jobs: Jobs) -> None:
    def submit(number: int) -> bool:
        try:
            _submit_as(jobs, "ada", f"job{number}", most=3)
        except TooManyJobs:
            return False
        return True

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(submit, range(24))) == 3
