"""Places in the queue and estimated starts, from a real Redis."""

from __future__ import annotations

from typing import Any

import redis

from app.errors import WorkerLost
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job import Job, Keys, Priority, QueuePosition
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Queue
from app.jobs.queue_position import (
    EXACT,
    QueuePositions,
    RunningJob,
    WaitingLine,
    seconds_per_job,
)
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry

LOST = WorkerLost("Its workers fell silent.")


class Office:
    """A queue with one worker that takes jobs when told to."""

    def __init__(self, server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
        self.jobs, self.registry = jobs, WorkerRegistry(server, keys)
        self.positions = QueuePositions(server, keys, self.registry, fresh_seconds=0.0)
        self.queue = Queue(server, "ann", lease=jobs.lease, keys=keys)
        self.queue.open()

    def advertise(self, name: str = "ann", *, seconds: float | None = None, is_ready: bool = True) -> None:
        stats = CaptionerInfo(name="stats", weights_sha256="0" * 64, features={}, seconds=seconds)
        self.registry.advertise(
            WorkerInfo(
                name=name, pid=1, host="here", version="1", is_ready=is_ready, device="cpu", started_at=0.0,
                captioners=[stats] if is_ready else [], default="stats",
            )
        )  # fmt: skip

    def submit(self, job_id: str, priority: Priority = "normal", captioner: str | None = None) -> Job:
        options = CaptionOptions(captioner=captioner)
        return self.jobs.submit(job_id, options, f"uploads/{job_id}", priority=priority)

    def take(self) -> Claim:
        (offer,) = self.queue.take(1, block=0)
        claim = self.jobs.claim(offer.job_id, offer.entry, offer.priority, "ann", cause=LOST)
        assert isinstance(claim, Claim)
        return claim

    def of(self, job_id: str) -> QueuePosition:
        job = self.jobs.get(job_id)
        assert job is not None
        return self.positions.of(job)

    def places(self, *job_ids: str) -> list[int | None]:
        return [self.of(job_id).place for job_id in job_ids]


def test_places_follow_priorities_then_arrival(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    for job_id, priority in (("a", "normal"), ("b", "low"), ("c", "normal"), ("d", "high")):
        office.submit(job_id, priority)  # type: ignore[arg-type]
    assert office.places("d", "a", "c", "b") == [1, 2, 3, 4]
    assert office.take().job.id == "d"
    assert office.places("d", "a", "c", "b") == [None, 1, 2, 3]
    jobs.cancel("a")
    assert office.places("a", "c", "b") == [None, 1, 2]


def test_what_was_handed_back_comes_first(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    office.submit("a", "low")
    claim = office.take()
    office.submit("b", "high")
    assert office.places("a", "b") == [None, 1]
    assert jobs.hand_back(claim)
    assert office.places("a", "b") == [1, 2]


def test_beyond_what_is_counted_the_place_is_the_last(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    jobs_told = [str(number) for number in range(EXACT)]
    line = WaitingLine.read(["9999999999999-0", EXACT + 7, jobs_told])
    job = Office(server, keys, jobs).submit("late")
    assert line.place_of(job) == EXACT + 7
    whole = WaitingLine.read(["5-0", 2, ["a", "b"]])
    assert whole.place_of(job) == 3  # it came since the snapshot


def test_workers_that_can_run_a_job_are_counted(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    office.submit("a", captioner="stats")
    office.submit("b", captioner="other")
    assert office.of("a") == QueuePosition(1, None, 0)
    office.advertise("bob", is_ready=False)  # loading: it has said nothing of what it will have
    assert (office.of("a").workers, office.of("b").workers) == (1, 1)
    office.advertise("bob")
    assert (office.of("a").workers, office.of("b").workers) == (1, 0)
    claim = office.take()
    assert office.of("a") == QueuePosition(None, None, 1)
    assert jobs.succeed(claim, {"caption": "a cat"})
    assert office.of("a") == QueuePosition()


def test_the_start_is_estimated_from_recent_runs(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    for job_id in "abcde":
        office.submit(job_id)
    office.advertise()
    assert office.of("a").estimated_seconds is None  # no job has ended, and the worker measured nothing
    office.advertise(seconds=2.0)
    assert [office.of(job_id).estimated_seconds for job_id in "abc"] == [0.0, 2.0, 4.0]
    assert jobs.succeed(office.take(), {"caption": "a cat"})
    server.delete(keys.recent_runs)
    server.lpush(keys.recent_runs, "1000 11000 ann", "11000 21000 ann", "0 10000 bob")
    assert [office.of(job_id).estimated_seconds for job_id in "bcd"] == [0.0, 10.0, 20.0]
    office.advertise("bob")
    assert [office.of(job_id).estimated_seconds for job_id in "bcde"] == [0.0, 0.0, 10.0, 10.0]


def test_a_run_is_kept_of_each_job_that_was_worked_on(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    for job_id in "abc":
        office.submit(job_id)
    jobs.cancel("c")
    assert jobs.succeed(office.take(), {"caption": "a cat"})
    assert jobs.fail(office.take(), LOST)
    runs: Any = server.lrange(keys.recent_runs, 0, -1)
    assert [run.split()[2] for run in runs] == ["ann", "ann"]


def test_a_job_that_runs_is_left_its_share() -> None:
    assert RunningJob("ann", elapsed=30.0, progress=0.25).seconds_left(usual=5.0) == 90.0
    assert RunningJob("ann", elapsed=2.0, progress=0.0).seconds_left(usual=5.0) == 3.0
    assert RunningJob("ann", elapsed=9.0, progress=0.0).seconds_left(usual=5.0) == 0.0


def test_jobs_that_ran_together_share_their_seconds() -> None:
    assert seconds_per_job([]) is None
    assert seconds_per_job(["0 4000 ann", "0 4000 ann"]) == 2.0
    assert seconds_per_job(["0 4000 ann", "0 4000 bob"]) == 4.0
    assert seconds_per_job(["0 4000 ann", "9000 11000 ann"]) == 3.0


def test_one_snapshot_serves_all_who_ask_at_once(server: redis.Redis, keys: Keys, jobs: Jobs) -> None:
    office = Office(server, keys, jobs)
    office.positions.fresh_seconds = 60.0
    first = office.submit("a")
    assert office.positions.of(first).place == 1
    assert office.positions.of(office.submit("b")).place == 2  # younger than the snapshot
    assert office.positions.snapshot() is office.positions.snapshot()
