"""Who gets how many jobs, whose leases have lapsed, and what a clock that is set does to either."""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis

from app.errors import WorkerLost
from app.jobs.job import Keys, Priority
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Offer, Queue, ensure_groups, release_dead_worker, waiting
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.serve.embedded_redis import RedisServer
from tests.app.played_time import pass_time
from tests.app.worker.test_worker import settings_for
from tests.app.workers import Service, eventually, service
from tests.media import write_video

pytestmark = pytest.mark.slow

TEN_MINUTES_MS = 600_000


class Crowd:
    """Workers that take and claim as real ones do, and beat and die when told to."""

    def __init__(self, jobs: Jobs, batch: int = 4) -> None:
        self.jobs, self.batch = jobs, batch
        self.claims: dict[str, list[Claim]] = {}
        self._queues: dict[str, Queue] = {}
        self._registry = WorkerRegistry(jobs.server, jobs.keys, time_to_live=3 * jobs.lease)
        ensure_groups(jobs.server, jobs.keys)

    def join(self, *names: str) -> None:
        for name in names:
            self.claims[name] = []
            self._queues[name] = Queue(
                self.jobs.server,
                name,
                lease=self.jobs.lease,
                attempts=self.jobs.attempts,
                keys=self.jobs.keys,
            )
            self._registry.advertise(
                WorkerInfo(
                    name=name,
                    pid=1,
                    host="",
                    version="",
                    is_ready=True,
                    device="",
                    started_at=0,
                    captioners=[],
                )
            )

    def die(self, name: str) -> list[str]:
        """The ids of the jobs that it had; its advertisement goes on for a while."""
        return [claim.job.id for claim in self.claims.pop(name)]

    def offers(self, name: str, *, is_ahead: bool = False) -> list[Offer]:
        self._queues[name]._looked_at = -1.0  # now and then; here, now
        return self._queues[name].take(self.batch, block=0, is_ahead=is_ahead)

    def work(self, name: str, *, is_ahead: bool = False) -> list[str]:
        """The ids of the jobs that it takes now. is_ahead: while it is at work."""
        offers = self.offers(name, is_ahead=is_ahead)
        for offer in offers:
            taken = self.jobs.claim(
                offer.job_id,
                offer.entry,
                offer.priority,
                name,
                cause=WorkerLost(""),
                is_shared=len(offers) > 1,
            )
            assert isinstance(taken, Claim), taken
            self.claims[name].append(taken)
        return [offer.job_id for offer in offers]

    def beat(self) -> None:
        for claims in self.claims.values():
            for claim in claims:
                assert self.jobs.beat(claim, "extract", 0.5) == "go"

    def beat_for(self, seconds: float) -> None:
        pass_time(self.jobs.server, self.jobs.keys, seconds, self.beat)

    def outlast_leases(self) -> None:
        """Lets the time go by after which nobody has a job who has not beaten."""
        pass_time(self.jobs.server, self.jobs.keys, self.jobs.lease + 0.1)


@pytest.fixture
def crowd(jobs: Jobs) -> Crowd:
    return Crowd(jobs)


def submit(jobs: Jobs, count: int, priority: Priority = "normal") -> list[str]:
    ids = [uuid.uuid4().hex for _ in range(count)]
    for job_id in ids:
        jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", priority=priority)
    return ids


def step_back(server: redis.Redis, keys: Keys, by: int = TEN_MINUTES_MS) -> None:
    """What the scripts see when the server's clock is set back: the last time they saw lies ahead of it.

    (A real step, of a server whose clock a preloaded library turned, gave the same: docs/operate.md.)
    """
    server.hincrby(keys.clock, "wall", by)


def test_four_jobs_two_idle_workers_two_each(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("ann", "bob")
    submit(jobs, 4)
    assert [len(crowd.work(name)) for name in ("ann", "bob")] == [2, 2]


@pytest.mark.parametrize(
    ("workers", "count", "shares"),
    [
        (1, 6, [4]),
        (2, 3, [1, 1]),
        (4, 16, [4, 4, 4, 4]),
        (4, 40, [4, 4, 4, 4]),
        (3, 1, [1, 0, 0]),
        (3, 7, [2, 2, 2]),
    ],
)
def test_waiting_jobs_are_dealt_out_evenly(
    crowd: Crowd, jobs: Jobs, workers: int, count: int, shares: list[int]
) -> None:
    names = [f"w{number}" for number in range(workers)]
    crowd.join(*names)
    submit(jobs, count)
    assert [len(crowd.work(name)) for name in names] == shares


def test_a_busy_worker_leaves_the_rest_to_an_idle_one(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("ann", "bob")
    submit(jobs, 2)
    assert [len(crowd.work("ann")), len(crowd.work("bob"))] == [1, 1]
    submit(jobs, 2)
    for claim in crowd.claims["ann"]:
        jobs.succeed(claim, {"caption": "done"})
    assert len(crowd.work("ann")) == 1  # the other is for bob, who has one in hand


def test_a_worker_at_work_takes_more_while_it_is_the_only_one(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("ann")
    ids = submit(jobs, 9)
    assert crowd.work("ann") == ids[:4]
    assert crowd.work("ann", is_ahead=True) == ids[4:8]
    assert crowd.work("ann", is_ahead=True) == ids[8:]
    assert crowd.work("ann", is_ahead=True) == []


def test_a_worker_at_work_takes_nothing_while_another_is_idle(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("ann", "bob")
    ids = submit(jobs, 6)
    assert crowd.work("ann") == ids[:3]
    assert crowd.work("ann", is_ahead=True) == []
    assert crowd.work("bob") == ids[3:]
    more = submit(jobs, 3)
    assert crowd.work("ann", is_ahead=True) == more[:1]  # (6 + 3) / 2 is its share, and it has three
    assert crowd.work("ann", is_ahead=True) == []
    assert crowd.work("bob", is_ahead=True) == more[1:2]
    assert crowd.work("bob", is_ahead=True) == []  # what is left over goes to whoever is free first


def test_a_worker_at_work_takes_orphans_before_what_waits(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("dead")
    lost = submit(jobs, 2)
    assert crowd.work("dead") == lost
    crowd.join("ann")
    (mine,) = submit(jobs, 1)
    assert crowd.work("ann") == [mine]
    crowd.die("dead")
    crowd.beat_for(jobs.lease + 0.1)
    submit(jobs, 3)
    assert crowd.work("ann", is_ahead=True) == lost


def test_a_worker_at_work_leaves_a_last_attempt_until_it_is_idle(crowd: Crowd, jobs: Jobs) -> None:
    (lost,) = submit(jobs, 1)
    for name in ("one", "two"):
        crowd.join(name)
        assert crowd.work(name) == [lost]
        crowd.die(name)
        if name == "one":
            crowd.outlast_leases()
    crowd.join("ann")
    (mine,) = submit(jobs, 1)
    assert crowd.work("ann") == [mine]
    crowd.beat_for(jobs.lease + 0.1)
    submit(jobs, 3)
    assert crowd.work("ann", is_ahead=True) == []  # nor what waits behind it
    jobs.succeed(crowd.claims["ann"].pop(), {"caption": "done"})
    assert crowd.work("ann") == [lost]


def test_an_orphan_behind_64_busy_entries_is_found(jobs: Jobs) -> None:
    crowd = Crowd(jobs, batch=64)
    crowd.join("busy")
    submit(jobs, 64)
    assert len(crowd.work("busy")) == 64
    crowd.join("dead")
    (orphan,) = submit(jobs, 1)
    assert crowd.work("dead") == [orphan]
    crowd.die("dead")
    crowd.join("idle")
    crowd.beat()
    assert crowd.work("idle") == []
    crowd.beat_for(jobs.lease + 0.1)
    assert crowd.work("idle") == [orphan]


def test_all_jobs_of_a_dead_worker_run_again_at_once_in_an_idle_one(crowd: Crowd, jobs: Jobs) -> None:
    """Four workers with four jobs each, and the one dies whose jobs came last."""
    names = ["ann", "bob", "cat", "dan"]
    crowd.join(*names)
    submit(jobs, 16)
    for name in names:
        assert len(crowd.work(name)) == 4
    lost = crowd.die("dan")
    crowd.beat_for(jobs.lease + 0.1)
    crowd.join("eve")
    assert crowd.work("eve") == lost
    assert [claim.job.attempt for claim in crowd.claims["eve"]] == [2, 2, 2, 2]


def test_idle_workers_share_orphans(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("dead")
    lost = submit(jobs, 4)
    assert crowd.work("dead") == lost
    crowd.die("dead")
    crowd.join("ann", "bob")
    crowd.outlast_leases()
    assert [crowd.work("ann"), crowd.work("bob")] == [lost[:2], lost[2:]]


def test_a_last_attempt_is_made_alone(crowd: Crowd, jobs: Jobs) -> None:
    """Should a job kill whole workers, those that shared a batch with it twice do not go down with it."""
    lost = submit(jobs, 3)
    for name in ("ann", "bob"):
        crowd.join(name)
        assert crowd.work(name) == lost
        crowd.die(name)
        crowd.outlast_leases()
    for name, job_id in zip(("cat", "dan", "eve"), lost, strict=True):
        crowd.join(name)
        assert crowd.work(name) == [job_id]
        assert crowd.claims[name][0].job.attempt == 3


def test_what_was_given_and_never_begun_is_given_again(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("dead", "ann")
    (job_id,) = submit(jobs, 1)
    assert [offer.job_id for offer in crowd.offers("dead")] == [job_id]
    assert crowd.work("ann") == []
    crowd.outlast_leases()
    assert crowd.work("ann") == [job_id]
    assert crowd.claims["ann"][0].job.attempt == 1


@pytest.mark.parametrize("moment", ["before the kill", "after the kill"])
def test_a_clock_set_back_delays_no_recovery(
    crowd: Crowd, jobs: Jobs, server: redis.Redis, keys: Keys, moment: str
) -> None:
    crowd.join("dead", "ann")
    submit(jobs, 1)
    (job_id,) = crowd.work("dead")
    if moment == "before the kill":
        step_back(server, keys)
    crowd.beat()
    crowd.die("dead")
    if moment == "after the kill":
        step_back(server, keys)
    assert crowd.work("ann") == []
    crowd.outlast_leases()
    assert crowd.work("ann") == [job_id]


def test_a_clock_set_forward_takes_no_job_from_a_worker_that_lives(
    crowd: Crowd, jobs: Jobs, server: redis.Redis, keys: Keys
) -> None:
    crowd.join("dead", "live", "ann")
    submit(jobs, 2)
    crowd.work("dead"), crowd.work("live")
    lost = crowd.die("dead")
    step_back(server, keys, -TEN_MINUTES_MS)
    assert crowd.work("ann") == []
    crowd.beat()
    pass_time(server, keys, jobs.lease / 4 + 0.1)
    crowd.beat()
    assert crowd.work("ann") == lost


def test_durations_are_never_negative(crowd: Crowd, jobs: Jobs, server: redis.Redis, keys: Keys) -> None:
    crowd.join("ann")
    (job_id,) = submit(jobs, 1)
    step_back(server, keys)
    crowd.work("ann")
    pass_time(server, keys, 20)
    step_back(server, keys)
    jobs.beat(crowd.claims["ann"][0], "caption", 0.5)
    pass_time(server, keys, 20)
    assert jobs.succeed(crowd.claims["ann"][0], {"caption": "done"})
    job = jobs.get(job_id)
    assert job is not None
    assert 0 <= (job.timings["queue"] or 0) < 20
    assert 40 <= (job.timings["total"] or 0) < 60
    server.hdel(keys.job(job_id), "created_ms")  # a record of before there was a clock
    server.hset(keys.job(job_id), "ended_at", "1.0")
    older = jobs.get(job_id)
    assert older is not None
    assert older.timings["total"] == 0


def test_progress_never_goes_back(crowd: Crowd, jobs: Jobs) -> None:
    crowd.join("ann")
    (job_id,) = submit(jobs, 1)
    crowd.work("ann")
    (attempt,) = crowd.claims["ann"]
    seen = []

    def look() -> None:
        job = jobs.get(job_id)
        assert job is not None
        seen.append(job.progress)

    jobs.beat(attempt, "caption", 0.8)
    look()
    again = jobs.claim_again(attempt, WorkerLost(""))
    assert isinstance(again, Claim)
    look()
    jobs.beat(again, "decode", 0.1)
    look()
    jobs.hand_back(again)
    look()
    crowd.work("ann")
    jobs.beat(crowd.claims["ann"][-1], "caption", 0.9)
    look()
    assert seen == [0.8, 0.8, 0.8, 0.8, 0.9]


def test_jobs_that_were_handed_back_wait(crowd: Crowd, jobs: Jobs, server: redis.Redis, keys: Keys) -> None:
    crowd.join("ann")
    submit(jobs, 3)
    crowd.work("ann")
    assert waiting(server, keys) == 0
    for claim in crowd.claims["ann"][:2]:
        jobs.hand_back(claim)
    assert waiting(server, keys) == 2


def test_a_job_handed_back_to_an_emptied_stream_is_not_lost(
    crowd: Crowd, jobs: Jobs, server: redis.Redis, keys: Keys
) -> None:
    crowd.join("ann")
    (job_id,) = submit(jobs, 1)
    crowd.work("ann")
    server.delete(keys.stream("normal"))
    assert jobs.beat(crowd.claims["ann"][0], "decode", 0.1) == "go"
    assert jobs.hand_back(crowd.claims["ann"][0])
    assert crowd.offers("ann") == []  # the group is made anew
    assert crowd.work("ann") == [job_id]


def test_a_flushed_script_cache_is_mended(jobs: Jobs, server: redis.Redis) -> None:
    crowd = Crowd(jobs, batch=1)
    crowd.join("ann")
    is_over = threading.Event()

    def flush() -> None:
        while not is_over.is_set():
            server.script_flush()

    flusher = threading.Thread(target=flush)
    flusher.start()
    try:
        for job_id in submit(jobs, 25):
            assert crowd.work("ann") == [job_id]
            for claim in crowd.claims["ann"]:
                assert jobs.beat(claim, "extract", 0.5) == "go"
                assert jobs.succeed(claim, {"caption": "done"})
            crowd.claims["ann"] = []
    finally:
        is_over.set()
        flusher.join()


@pytest.fixture
def crew(server: redis.Redis, redis_server: RedisServer, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    with service(server, redis_server.url, settings_for(tmp_path, keys.namespace)) as running:
        yield running


def test_a_killed_workers_whole_batch_runs_again_wherever_it_stood(crew: Service, tmp_path: Path) -> None:
    """Real workers: three are busy with long batches, one is killed, and one comes up in its place."""
    video = write_video(tmp_path / "clip.mp4", frames=5)
    ids = [crew.submit(video, "sleep-20") for _ in range(12)]
    workers = [crew.start_worker(REELWORD_BATCH_JOBS="4") for _ in range(3)]
    eventually(lambda: all(crew.job(job_id).state == "running" for job_id in ids), 60)
    last = next(worker for worker in workers if f"-{worker.pid}-" in crew.holder(ids[-1]))
    lost = [job_id for job_id in ids if f"-{last.pid}-" in crew.holder(job_id)]
    last.send_signal(signal.SIGKILL)
    crew.start_worker(REELWORD_BATCH_JOBS="4")
    is_there = time.monotonic()
    eventually(lambda: all(f"-{last.pid}-" not in crew.holder(job_id) for job_id in lost), 30)
    assert len(lost) == 4
    # those that only waited for the engine lose nothing
    assert {crew.job(job_id).attempt for job_id in lost} in ({1, 2}, {2})
    assert time.monotonic() - is_there < crew.settings.lease_seconds + 10


def test_the_jobs_of_a_worker_known_to_be_dead_run_again_at_once(jobs: Jobs) -> None:
    """Its supervisor saw it die, or one with its host and process id has started: no lease is waited for."""
    jobs = Jobs(jobs.server, attempts=3, lease=60, result_ttl=60, keys=jobs.keys)
    crowd = Crowd(jobs)
    crowd.join("host-1-a")
    ids = submit(jobs, 4)
    assert set(crowd.work("host-1-a")) == set(ids)
    crowd.join("host-2-b")
    assert crowd.work("host-2-b") == []
    assert release_dead_worker(jobs.server, "host-1", jobs.keys) == 4
    assert set(crowd.work("host-2-b")) == set(ids)
    assert all(job.attempt == 2 for job in map(jobs.get, ids) if job is not None)


def test_others_keep_their_jobs_when_a_worker_is_released(jobs: Jobs, server: redis.Redis) -> None:
    jobs = Jobs(jobs.server, attempts=3, lease=60, result_ttl=60, keys=jobs.keys)
    crowd = Crowd(jobs)
    for name in ("host-1-alive", "host-11-other", "elsewhere-1-other"):
        crowd.join(name)
        submit(jobs, 1)
        assert len(crowd.work(name)) == 1
    assert release_dead_worker(server, "host-1", jobs.keys, living="host-1-alive") == 0
    crowd.join("idle-2-x")
    assert crowd.work("idle-2-x") == []
    names = {worker.name for worker in WorkerRegistry(server, jobs.keys).workers()}
    assert names == {"host-1-alive", "host-11-other", "elsewhere-1-other", "idle-2-x"}


def test_a_worker_that_leaves_stays_a_consumer_while_it_has_entries(jobs: Jobs, server: redis.Redis) -> None:
    crowd = Crowd(jobs)
    for name in ("idle-1-a", "busy-1-b"):
        crowd.join(name)
    (job_id,) = submit(jobs, 1)
    assert crowd.work("busy-1-b") == [job_id]
    stream = jobs.keys.stream("normal")
    server.xgroup_createconsumer(stream, "workers", "idle-1-a")
    for name in ("idle-1-a", "busy-1-b"):
        Queue(server, name, lease=1, keys=jobs.keys).close()
    consumers: Any = server.xinfo_consumers(stream, "workers")
    assert [(consumer["name"], consumer["pending"]) for consumer in consumers] == [("busy-1-b", 1)]


def test_old_consumers_are_forgotten_but_not_the_one_for_what_is_handed_back(
    jobs: Jobs, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job may be given to it in the very moment; with its consumer the entry would be lost for ever."""
    ensure_groups(server, jobs.keys)
    stream = jobs.keys.stream("normal")
    for name in ("nobody", "long-gone"):
        server.xgroup_createconsumer(stream, "workers", name)
    monkeypatch.setattr("app.jobs.queue.FORGOTTEN_AFTER_MS", -1)
    Queue(server, "host-7-new", lease=1, keys=jobs.keys).open()
    consumers: Any = server.xinfo_consumers(stream, "workers")
    assert [consumer["name"] for consumer in consumers] == ["nobody"]


def calls_of(server: redis.Redis, act: Callable[[], object]) -> int:
    """How many commands Redis ran, those of scripts among them."""

    def total() -> int:
        stats: Any = server.info("commandstats")
        return sum(int(each["calls"]) for name, each in stats.items() if name != "cmdstat_info")

    before = total()
    act()
    return total() - before


def test_what_a_worker_costs_redis_does_not_grow_with_their_number(jobs: Jobs, server: redis.Redis) -> None:
    """Between two looks for abandoned jobs; before, each worker asked Redis about every other one."""
    calls = {}
    for count in (70, 140):
        crowd = Crowd(jobs)
        crowd.join(*(f"w{number}" for number in range(count)))
        submit(jobs, 20)
        queue = crowd._queues["w1"]
        server.hset(jobs.keys.clock, "looked", 10**14)
        queue._looked_at = time.monotonic() - 10
        calls[count] = [
            calls_of(server, partial(queue.take, 4, block=0)),
            calls_of(server, lambda: waiting(server, jobs.keys)),
        ]
    assert calls[70] == calls[140]
    assert max(calls[70]) < 40


def test_one_worker_looks_for_abandoned_jobs_for_all(
    jobs: Jobs, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.queue.RECOVERY_INTERVAL", 5.0)
    crowd = Crowd(jobs, batch=1)
    crowd.join("ann", "bob", "cat")
    (job_id,) = submit(jobs, 1)
    assert crowd.work("ann") == [job_id]
    queue = crowd._queues["cat"]
    assert crowd.offers("bob") == []  # has looked for all
    server.hset(jobs.keys.job(job_id), "lease", 0)
    queue._looked_at = 0.0  # long ago; but bob has only just looked
    assert queue.take(1, block=0) == []
    pass_time(server, jobs.keys, 5.1)
    queue._looked_at = 0.0
    assert [offer.job_id for offer in queue.take(1, block=0)] == [job_id]


def test_among_many_workers_jobs_are_dealt_out_evenly_too(crowd: Crowd, jobs: Jobs) -> None:
    names = [f"w{number:02}" for number in range(70)]
    crowd.join(*names)
    submit(jobs, 150)
    taken = [len(crowd.work(name)) for name in names[:5]]
    assert taken == [2, 2, 2, 2, 2]
    assert len(crowd.work(names[0])) == 1  # it has its share in hand: one at least
