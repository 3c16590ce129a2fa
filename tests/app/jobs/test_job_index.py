"""The list of jobs: pages, filters, cursors, and an index that follows its records."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import InvalidCursor, RecordUnreadable, WorkerLost
from app.jobs.job import Job, Keys, Submission
from app.jobs.job_index import JobFilter, JobIndex
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Queue
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from tests.app.job_counts import count_by_state
from tests.app.scripted_worker import answer
from tests.app.workers import eventually

CAUSE = WorkerLost("The worker fell silent.")
ALL = JobFilter()


@pytest.fixture(scope="module", autouse=True)
def without_disk(redis_server: RedisServer) -> Iterator[None]:
    """Thousands of submissions, no power cut among them; switched once, since that rewrites the file."""
    with connect(redis_server.url, patience=5) as client:
        client.config_set("appendonly", "no")
        yield
        client.config_set("appendonly", "yes")
        # until it is written, the server does not end when it is asked to
        eventually(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0)


@pytest.fixture
def queue(server: redis.Redis, jobs: Jobs, keys: Keys) -> Queue:
    opened = Queue(server, "w1", lease=jobs.lease, keys=keys)
    opened.open()
    return opened


def submit(jobs: Jobs, captioner: str | None = "stats", **submission: Any) -> str:
    job_id = uuid.uuid4().hex
    options = CaptionOptions(captioner=captioner)
    return jobs.submit(job_id, options, f"uploads/{job_id}", submission=Submission(**submission)).id


def claim(jobs: Jobs, job_id: str) -> Claim:
    job = jobs.get(job_id)
    assert job is not None
    claimed = jobs.claim(job_id, job.entry, job.priority, "w1", cause=CAUSE)
    assert isinstance(claimed, Claim)
    return claimed


def ids_of(found: Any) -> list[str]:
    return [job.id for job in found.jobs]


def pages(index: JobIndex, wanted: JobFilter = ALL, limit: int = 2) -> Iterator[list[Job]]:
    """All pages of a list, one by one."""
    cursor = None
    while True:
        page = index.page(wanted, limit, cursor)
        yield list(page.jobs)
        cursor = page.next
        if cursor is None:
            return


def listed(index: JobIndex, wanted: JobFilter = ALL, limit: int = 2) -> list[str]:
    return [job.id for page in pages(index, wanted, limit) for job in page]


def mend(index: JobIndex) -> None:
    """Walks both all the way: the tests' server has other tests' keys, too, and their ends may never meet."""
    index.mend()
    while index._record_at:
        index.mend()
    while index._indexed_at:
        index.mend()


def index_holds(jobs: Jobs, job_id: str) -> set[str]:
    """The sets of the index that have a job."""
    names: Any = jobs.server.keys(f"{jobs.keys.index}*")
    kinds = {name: jobs.server.type(name) for name in names}
    return {
        name.removeprefix(jobs.keys.index)
        for name, kind in kinds.items()
        if kind == "zset" and jobs.server.zscore(name, job_id) is not None
    }


def test_the_newest_job_comes_first(jobs: Jobs) -> None:
    assert jobs.index.page(ALL).jobs == []
    sent = [submit(jobs) for _ in range(5)]
    page = jobs.index.page(ALL, 2)
    assert ids_of(page) == [sent[4], sent[3]]
    assert page.next is not None
    assert ids_of(jobs.index.page(ALL, 2, page.next)) == [sent[2], sent[1]]
    assert listed(jobs.index) == sent[::-1]
    assert jobs.index.page(ALL, 5).next is None  # exactly as many as there are


def test_jobs_are_listed_by_their_states_as_these_change(jobs: Jobs, queue: Queue) -> None:
    waiting, running, succeeded, failed, stopped, gone = (submit(jobs) for _ in range(6))
    claim(jobs, running)
    jobs.succeed(claim(jobs, succeeded), answer())
    jobs.fail(claim(jobs, failed), CAUSE)
    jobs.cancel(stopped)
    jobs.fail(claim(jobs, gone), CAUSE)
    jobs.expire(gone)
    by_state = {state: listed(jobs.index, JobFilter(states=[state])) for state in count_by_state(jobs)}
    assert by_state == {
        "queued": [waiting], "running": [running], "succeeded": [succeeded],
        "failed": [failed], "canceled": [stopped], "expired": [gone],
    }  # fmt: skip
    assert count_by_state(jobs) == dict.fromkeys(by_state, 1)
    two = JobFilter(states=["failed", "queued"])
    assert listed(jobs.index, two, limit=1) == [failed, waiting]
    claimed = claim(jobs, waiting)
    jobs.hand_back(claimed)
    assert index_holds(jobs, waiting) == {"", ":state:queued"}


def test_exhausted_and_buried_jobs_are_where_they_belong(jobs: Jobs, queue: Queue) -> None:
    dead, worn = submit(jobs), submit(jobs)
    jobs.server.hset(jobs.keys.job(worn), "attempt", jobs.attempts)
    job = jobs.get(worn)
    assert job is not None
    jobs.claim(worn, job.entry, job.priority, "w1", cause=CAUSE)
    assert index_holds(jobs, worn) == {"", ":state:failed"}
    claimed = claim(jobs, dead)
    jobs.bury(dead, claimed.job.entry, "normal", "odd")
    assert index_holds(jobs, dead) == {"", ":state:queued"}
    letter = jobs.dead.find(dead)
    assert letter is not None
    jobs.requeue(letter)
    assert index_holds(jobs, dead) == {"", ":state:queued"}


def test_filters_are_met_together(jobs: Jobs, queue: Queue) -> None:
    mine = submit(jobs, "g2l", owner="ann", batch="b1")
    other = submit(jobs, "stats", owner="ann")
    foreign = submit(jobs, "g2l", owner="bob")
    open_choice = submit(jobs, None, owner="bob")
    jobs.succeed(claim(jobs, open_choice), answer("g2l"))
    assert listed(jobs.index, JobFilter(owner="ann")) == [other, mine]
    assert listed(jobs.index, JobFilter(owner="ann", captioner="g2l")) == [mine]
    assert listed(jobs.index, JobFilter(captioner="g2l")) == [open_choice, foreign, mine]
    assert listed(jobs.index, JobFilter(owner="bob", states=["queued"])) == [foreign]
    assert listed(jobs.index, JobFilter(owner="bob", states=["succeeded", "queued"])) == [
        open_choice,
        foreign,
    ]
    assert listed(jobs.index, JobFilter(owner="eve")) == []
    assert listed(jobs.index, JobFilter(owner="eve", states=["queued"])) == []


def test_times_bound_a_list_without_the_times_themselves(jobs: Jobs) -> None:
    sent = [submit(jobs) for _ in range(4)]
    at = {job.id: job.created_at for page in pages(jobs.index) for job in page}
    assert listed(jobs.index, JobFilter(created_after=at[sent[1]])) == [sent[3], sent[2]]
    assert listed(jobs.index, JobFilter(created_before=at[sent[2]])) == [sent[1], sent[0]]
    between = JobFilter(created_after=at[sent[0]], created_before=at[sent[3]])
    assert listed(jobs.index, between, limit=1) == [sent[2], sent[1]]


@pytest.mark.parametrize("cursor", ["", "x", "é", "bm8=", "MTIzIA==", "LTUgYQ==", "MSAuLi8=", "=" * 1000])
def test_a_cursor_that_no_page_ended_with_is_refused(jobs: Jobs, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        jobs.index.page(ALL, 2, cursor)


def test_the_cursor_of_a_job_that_vanished_goes_on_behind_it(jobs: Jobs) -> None:
    sent = [submit(jobs) for _ in range(4)]
    cursor = jobs.index.page(ALL, 2).next
    jobs.server.delete(jobs.keys.job(sent[2]))
    jobs.index.reindex([sent[2]])
    assert ids_of(jobs.index.page(ALL, 2, cursor)) == [sent[1], sent[0]]


def test_jobs_of_the_same_microsecond_are_listed_once_each(jobs: Jobs) -> None:
    sent = {submit(jobs) for _ in range(7)}
    for job_id in sent:
        jobs.server.hset(jobs.keys.job(job_id), "created_at", "1700000000.000001")
    jobs.index.reindex(list(sent))
    for limit in (1, 2, 3, 7):
        ids = listed(jobs.index, limit=limit)
        assert (len(ids), set(ids)) == (7, sent)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_each_old_job_is_on_one_page_while_jobs_come_and_change(
    server: redis.Redis, data: st.DataObject
) -> None:
    """Jobs are added, claimed and ended between any two pages; a list of states and a list of all."""
    jobs = Jobs(server, attempts=3, lease=10, result_ttl=60, keys=Keys(f"test-{uuid.uuid4().hex[:12]}"))
    Queue(server, "w1", lease=10, keys=jobs.keys).open()
    states: list[Any] = data.draw(
        st.sampled_from([[], ["queued", "running"], ["running", "succeeded", "queued"]])
    )
    owner = uuid.uuid4().hex if data.draw(st.booleans()) else None
    old = [submit(jobs, owner=owner) for _ in range(data.draw(st.integers(0, 9)))]
    limit, cursor, ids = data.draw(st.integers(1, 4)), None, []
    job_filter = JobFilter(states=states, owner=owner)
    while True:
        page = jobs.index.page(job_filter, limit, cursor)
        ids += ids_of(page)
        if (cursor := page.next) is None:
            break
        for _ in range(data.draw(st.integers(0, 3))):
            submit(jobs, owner=owner)
        if data.draw(st.booleans()) and old:
            job = jobs.get(data.draw(st.sampled_from(old)))
            if job is not None and job.state == "queued":
                claim(jobs, job.id)
    assert len(ids) == len(set(ids))
    assert [job_id for job_id in ids if job_id in old] == old[::-1]


def test_a_page_looks_at_a_bounded_number_of_records(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.job_index.EXAMINED", 3)
    rare = submit(jobs, "g2l")
    for _ in range(7):
        submit(jobs, "stats")
    ids = [[job.id for job in page] for page in pages(jobs.index, JobFilter(captioner="g2l"), limit=5)]
    assert ids == [[], [], [rare]]


def test_what_vanished_is_passed_over_and_taken_out(jobs: Jobs) -> None:
    kept, gone = submit(jobs, owner="ann"), submit(jobs, owner="ann")
    jobs.server.delete(jobs.keys.job(gone))
    assert listed(jobs.index) == [kept]
    assert index_holds(jobs, gone) == set()
    assert jobs.server.hgetall(f"{jobs.keys.index}:owners") == {kept: "ann"}
    assert count_by_state(jobs)["queued"] == 1


def test_an_expired_record_leaves_the_index_when_its_time_is_over(jobs: Jobs, queue: Queue) -> None:
    job_id = submit(jobs, owner="ann")
    jobs.succeed(claim(jobs, job_id), answer())
    jobs.expire(job_id)
    assert listed(jobs.index, JobFilter(states=["expired"])) == [job_id]
    jobs.server.pexpire(jobs.keys.job(job_id), 1)
    time.sleep(0.02)
    mend(jobs.index)
    assert index_holds(jobs, job_id) == set()


def test_expired_records_leave_the_index_however_many_there_are(
    server: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a service that ends more jobs than ``mend`` walks over would grow for ever."""
    monkeypatch.setattr("app.jobs.job_index.STEPS", 0)
    monkeypatch.setattr("app.jobs.job_index.AT_A_TIME", 2)
    jobs = Jobs(server, attempts=3, lease=5, result_ttl=20, keys=keys)
    gone, kept = [submit(jobs, owner="ann") for _ in range(5)], submit(jobs)
    for job_id in gone:
        assert jobs.cancel(job_id) == "done"
        assert jobs.expire(job_id)
    jobs.index.mend()
    assert server.zcard(keys.index) == 6  # their records are still there
    server.delete(*map(keys.job, gone))  # as 30 seconds later
    for job_id in gone:
        server.zincrby(keys.vanishing, -30, job_id)
    jobs.index.mend()
    assert server.zrange(keys.index, 0, -1) == [kept]
    assert server.zcard(keys.vanishing) == 0
    assert server.hlen(f"{keys.index}:owners") == 0


def test_jobs_of_versions_without_an_index_are_found(jobs: Jobs, queue: Queue) -> None:
    sent = [submit(jobs, owner="ann") for _ in range(3)]
    for name in jobs.server.keys(f"{jobs.keys.index}*"):
        jobs.server.delete(name)
    claim(jobs, sent[1])  # whatever changes it puts it there
    assert listed(jobs.index) == [sent[1]]
    mend(jobs.index)
    assert listed(jobs.index, JobFilter(owner="ann")) == sent[::-1]
    jobs.server.hset(jobs.keys.job(sent[0]), "state", "running")  # an older worker, which knows no index
    mend(jobs.index)
    assert listed(jobs.index, JobFilter(states=["running"])) == [sent[1], sent[0]]


def test_mending_goes_on_where_it_stopped(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.jobs.job_index.STEPS", 1)
    sent = [submit(jobs) for _ in range(450)]
    jobs.server.delete(*jobs.server.keys(f"{jobs.keys.index}*"))
    jobs.index.mend()
    assert jobs.index._record_at != 0
    mend(jobs.index)
    assert listed(jobs.index, limit=200) == sent[::-1]


def test_records_and_keys_that_mean_nothing_cost_nobody_else_their_place(jobs: Jobs) -> None:
    odd, good = submit(jobs), submit(jobs)
    jobs.server.hset(jobs.keys.job(odd), "options", "{")
    with pytest.raises(RecordUnreadable):
        jobs.get(odd)
    assert listed(jobs.index) == [good]
    other = submit(jobs)
    jobs.server.delete(jobs.keys.job(other))
    jobs.server.set(jobs.keys.job(other), "not a hash")
    assert listed(jobs.index) == [good]
    for name in jobs.server.keys(f"{jobs.keys.index}*"):
        jobs.server.delete(name)
        jobs.server.set(name, "something else")
    assert listed(jobs.index) == []
    assert sum(count_by_state(jobs).values()) == 0
    newest = submit(jobs, owner="ann")
    assert listed(jobs.index) == [newest]
    mend(jobs.index)
    assert listed(jobs.index, JobFilter(states=["queued"])) == [newest, good]
