"""Who has few jobs waits for few: what waits is taken one of each owner by turns, whoever came first."""

from __future__ import annotations

import time
import uuid

import pytest
import redis

from app.jobs.job import Keys, Priority, Submission
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Passed, Queue, waiting
from app.jobs.queue_position import QueuePositions
from app.jobs.worker_registry import WorkerRegistry
from tests.app.jobs.test_jobs import claim


@pytest.fixture
def queue(server: redis.Redis, jobs: Jobs, keys: Keys) -> Queue:
    opened = Queue(server, "w1", lease=jobs.lease, keys=keys)
    opened.open()
    return opened


def submit(
    jobs: Jobs, owner: str | None, count: int = 1, priority: Priority = "normal", url: str | None = None
) -> list[str]:
    ids = [f"{owner}-{number}-{uuid.uuid4().hex[:8]}" for number in range(count)]
    for job_id in ids:
        told = Submission(owner=owner, source_url=url)
        jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", priority=priority, submission=told)
    return ids


def taken(queue: Queue, count: int, without: Passed | None = None) -> list[str]:
    offers = queue.take(count, block=0, without=without or Passed())
    return [offer.job_id for offer in offers]


def test_one_of_each_owner_is_taken_by_turns(jobs: Jobs, queue: Queue) -> None:
    ada, bob, open_ones = submit(jobs, "ada", 5), submit(jobs, "bob", 2), submit(jobs, None, 1)
    assert taken(queue, 4) == [ada[0], bob[0], open_ones[0], ada[1]]
    cleo = submit(jobs, "cleo", 1)
    assert taken(queue, 4) == [bob[1], ada[2], cleo[0], ada[3]]
    assert (taken(queue, 4), taken(queue, 4), waiting(jobs.server, jobs.keys)) == ([ada[4]], [], 0)


def test_the_more_urgent_go_first_all_the_same(jobs: Jobs, queue: Queue) -> None:
    low, high = submit(jobs, "bob", 1, "low"), submit(jobs, "ada", 3, "high")
    assert [taken(queue, 2), taken(queue, 2), taken(queue, 2)] == [high[:2], high[2:], low]


def test_places_are_those_in_which_jobs_will_be_taken(jobs: Jobs, queue: Queue) -> None:
    ada, bob = submit(jobs, "ada", 4), submit(jobs, "bob", 2)
    positions = QueuePositions(
        jobs.server, jobs.keys, WorkerRegistry(jobs.server, jobs.keys), fresh_seconds=0
    )

    def places() -> list[int | None]:
        return [positions.of(job).place for job in map(jobs.get, ada + bob) if job is not None]

    assert places() == [1, 3, 5, 6, 2, 4]
    for job_id in taken(queue, 3):  # ada, bob, ada
        claim(jobs, job_id)
    assert places() == [None, None, 2, 3, None, 1]


def test_what_is_cancelled_leaves_no_trace_in_the_lanes(jobs: Jobs, queue: Queue, keys: Keys) -> None:
    ada = submit(jobs, "ada", 3)
    jobs.cancel(ada[0])
    lane = f"{keys.stream('normal')}:lane:ada"
    assert jobs.server.zcard(lane) == 2
    assert taken(queue, 4) == ada[1:]
    assert not jobs.server.exists(lane)


def test_what_has_to_be_fetched_is_left_out_where_that_is_asked_for(jobs: Jobs, queue: Queue) -> None:
    slow = submit(jobs, "ada", 2, url="http://slow.example/a.mp4")
    other = submit(jobs, "bob", 1, url="http://quick.example/a.mp4")
    file = submit(jobs, "ada", 1)
    assert taken(queue, 4, Passed(all_fetches=True)) == file
    assert taken(queue, 4, Passed(owners=["ada"])) == other
    assert taken(queue, 4, Passed(owners=["ada"])) == []
    more = submit(jobs, "ada", 1)
    assert taken(queue, 4, Passed(owners=["ada"], are_whole=True)) == []
    assert taken(queue, 1, Passed(owners=["ada"])) == more
    assert taken(queue, 4) == slow


def test_lanes_that_were_lost_are_made_anew(jobs: Jobs, queue: Queue, keys: Keys) -> None:
    """Also of entries that a version without lanes has put in."""
    ada, stream = submit(jobs, "ada", 2), keys.stream("normal")
    jobs.server.delete(f"{stream}:lanes", f"{stream}:lane:ada")
    bob = submit(jobs, "bob", 2)
    jobs.server.delete(f"{stream}:lanes")
    old = submit(jobs, None)[0]
    job = jobs.get(old)
    assert job is not None
    jobs.server.xdel(stream, job.entry)
    entry = str(jobs.server.xadd(stream, {"job": old}))
    jobs.server.hset(keys.job(old), "entry", entry)
    assert {*taken(queue, 4), *taken(queue, 4)} == {*ada, *bob, old}


def test_a_waiting_worker_wakes_for_the_next_job_and_for_what_is_left(
    server: redis.Redis, jobs: Jobs, queue: Queue, keys: Keys
) -> None:
    submit(jobs, "ada", 2)
    server.delete(keys.wake)  # tokens may be gone: others took them
    other = Queue(server, "w2", lease=jobs.lease, keys=keys)
    assert len(queue.take(1, block=0)) == 1
    began = time.monotonic()
    assert len(other.take(1, block=30)) == 1
    assert time.monotonic() - began < 10
    assert other.take(1, block=0.01) == []


def test_a_film_that_gives_way_waits_behind_the_others_with_all_its_attempts(
    jobs: Jobs, queue: Queue
) -> None:
    film = submit(jobs, "ada")[0]
    assert taken(queue, 1) == [film]
    attempt: Claim = claim(jobs, film)
    clip = submit(jobs, "bob")[0]
    assert jobs.give_way(attempt)
    assert not jobs.succeed(attempt, {"caption": "late"})
    assert taken(queue, 1) == [clip]
    assert taken(queue, 1, Passed(all_films=True)) == []
    assert taken(queue, 1) == [film]
    again = claim(jobs, film)
    assert again.job.attempt == 1
    assert jobs.succeed(again, {"caption": "a film"})
