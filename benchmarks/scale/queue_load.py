"""How many jobs does one Redis take, hand out and end in a second, and what does it keep of them?

    python -m benchmarks.scale.queue_load [--jobs 10000] [--workers 64] [--quick] [--results FILE]

Simulated workers in several processes take, claim, beat and end jobs as real ones do, with an engine that
does nothing: first all jobs wait, then they come at a rate below what was reached. Redis is the embedded one,
with every write on its disk before it answers. Wall times are those of this machine; Redis's own CPU seconds
a job are what bounds a fleet, and hardly depend on what else runs here. Last, what one call costs with 64 and
with 1,000 workers, beside 8.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import redis

from app.errors import WorkerLost
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job import GROUP, PRIORITIES, Keys
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Queue, ensure_groups, waiting
from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.serve.embedded_redis import RedisServer
from benchmarks.support.rows import Row, add_options, tell

LEASE, ATTEMPTS, BATCH = 10.0, 3, 4  #: as the settings have them by default
PROCESSES, SENDERS = 4, 8
SHARE_OF_REACHED = 0.5  #: of the rate that was reached, at which jobs come in the second part
FLEETS = (8, 64, 1000)
CALLS = 100  #: of which the cost of one is the mean
ANSWER = {
    "caption": "a man rides a horse on a beach",
    "timings": {"decode": 0.1, "extract": 0.8, "caption": 0.2},
}


@dataclass(frozen=True)
class Place:
    """Says where the queue is: Redis's address, the names' prefix, and the seconds that results are kept."""

    url: str
    namespace: str
    result_ttl: float = 3600.0

    def jobs(self, client: redis.Redis) -> Jobs:
        return Jobs(
            client, attempts=ATTEMPTS, lease=LEASE, result_ttl=self.result_ttl, keys=Keys(self.namespace)
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=64)
    add_options(parser)
    arguments = parser.parse_args()
    jobs, workers = (1_000, 16) if arguments.quick else (arguments.jobs, arguments.workers)
    with tempfile.TemporaryDirectory(prefix="reelword-queue-") as folder, RedisServer(Path(folder)) as server:
        tell(measure(server.url, jobs, workers), arguments.results)
    return 0


def measure(url: str, count: int, workers: int) -> Iterator[Row]:
    """Runs all parts on one server and yields the rows."""
    place = Place(url, f"load-{uuid.uuid4().hex[:8]}", result_ttl=3.0)
    with connect(url, patience=5) as client:
        ensure_groups(client, Keys(place.namespace))
        empty = _memory(client)
        yield from _submit_all(place, client, count, empty)
        seconds = _drain(place, client, count, workers)
        yield from _drained(place, client, count, seconds, empty)
        yield from _steady(
            place, client, max(200, count // 5), workers, SHARE_OF_REACHED * count / seconds.wall
        )
        yield from _forget(place, client, empty)
        yield from fleets(url, client)


# ---- a backlog, and jobs as they come ----


@dataclass(frozen=True)
class Seconds:
    """Holds what was spent: by the clock, and by Redis's main thread."""

    wall: float
    redis: float


def _submit_all(place: Place, client: redis.Redis, count: int, empty: int) -> Iterator[Row]:
    floor = _floor(client, count)
    spent, began = RedisTime(client), time.monotonic()
    _send(place, count)
    found = Seconds(time.monotonic() - began, spent.seconds())
    yield _row(
        "jobs accepted", count / found.wall, "jobs/s", note=f"{SENDERS} threads send, each job on disk"
    )
    yield _row(
        "Redis's CPU to accept a job", found.redis / count * 1e6, "µs", peer=floor,
        peer_name="one LPUSH and RPOP on disk",
    )  # fmt: skip
    yield _row("memory of a waiting job", (_memory(client) - empty) / count, "bytes")


def _floor(client: redis.Redis, count: int) -> float:
    """Measures Redis's CPU, in µs, for the least that a queue on disk can do: two writes."""
    spent = RedisTime(client)
    for number in range(count // 10):
        client.lpush("floor", f"{number:032}")
        client.rpop("floor")
    return spent.seconds() / (count // 10) * 1e6


def _drain(place: Place, client: redis.Redis, count: int, workers: int) -> Seconds:
    """Ends all jobs that wait."""
    spent = RedisTime(client)
    with _fleet(place, workers):
        began = time.monotonic()
        _wait_for(lambda: _ended(client, place) >= count)
        return Seconds(time.monotonic() - began, spent.seconds())


def _drained(place: Place, client: redis.Redis, count: int, spent: Seconds, empty: int) -> Iterator[Row]:
    cpu = spent.redis / count * 1e6
    yield _row(
        "jobs taken and ended",
        count / spent.wall,
        "jobs/s",
        note=f"batches of {BATCH}; the clients share the cores",
    )
    yield _row("Redis's CPU to take and end a job", cpu, "µs", note="take, claim, one beat, end")
    yield _row("jobs a second that Redis's one core could do", 1e6 / cpu, "jobs/s", note="computed")
    yield _row("memory of a job that is over", (_memory(client) - empty) / count, "bytes")
    yield _row(
        "entries in the streams when all are over", _entries(client, place), "entries", goal="ours <= 0"
    )


def _steady(place: Place, client: redis.Redis, count: int, workers: int, rate: float) -> Iterator[Row]:
    before = _ended(client, place)
    with _fleet(place, workers) as waited:
        _send(place, count, rate)
        _wait_for(lambda: _ended(client, place) >= before + count)
    ordered = sorted(waited)
    yield _row(
        "a job waits for its worker, median",
        1000 * statistics.median(ordered),
        "ms",
        note=f"{rate:.0f} jobs/s come",
    )
    yield _row("a job waits for its worker, p99", 1000 * ordered[int(0.99 * (len(ordered) - 1))], "ms")


def _forget(place: Place, client: redis.Redis, empty: int) -> Iterator[Row]:
    """Lets all results expire, as workers and the sweeper do, and measures what is left."""
    jobs = place.jobs(client)
    time.sleep(place.result_ttl + 1)
    began, count = time.monotonic(), 0
    while due := jobs.due(500):
        count += sum(jobs.expire(job_id) for job_id in due)
    seconds = time.monotonic() - began
    time.sleep(place.result_ttl + 3)
    jobs.index.mend()
    ended: Any = client.memory_usage(jobs.keys.ended) or 0
    index: Any = client.zcard(jobs.keys.index)
    left = (_memory(client) - empty - ended) / 1024
    yield _row("results forgotten", count / seconds, "jobs/s", note="by one process")
    yield _row("entries in the index when all are forgotten", index, "entries", goal="ours <= 0")
    yield _row(
        "memory when all are forgotten", left, "KiB", note=f"and {ended // 1024} KiB of ends that nobody read"
    )


def _row(name: str, ours: float, unit: str, **more: Any) -> Row:
    return Row("queue_load", name, ours, unit, better="more" if unit == "jobs/s" else "less", **more)


def _send(place: Place, count: int, rate: float | None = None) -> None:
    """Submits jobs with several senders; rate: jobs a second, as fast as possible without one."""
    options = CaptionOptions(captioner="stats")
    began = time.monotonic()
    with connect(place.url, patience=5) as client, ThreadPoolExecutor(SENDERS) as pool:
        jobs = place.jobs(client)

        def send(number: int) -> None:
            if rate is not None:
                time.sleep(max(0.0, began + number / rate - time.monotonic()))
            job_id = uuid.uuid4().hex
            jobs.submit(job_id, options, f"uploads/{job_id}", filename="clip.mp4")

        for _ in pool.map(send, range(count)):
            pass


@contextmanager
def _fleet(place: Place, workers: int) -> Iterator[list[float]]:
    """Runs simulated workers in processes of their own; at the end the list has how long each job waited."""
    context = multiprocessing.get_context("spawn")
    over, results = context.Event(), context.Queue()
    shares = [workers // PROCESSES + (k < workers % PROCESSES) for k in range(PROCESSES)]
    processes = [
        context.Process(target=run_workers, args=(place, f"sim-{k}", share, over, results))
        for k, share in enumerate(shares)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        results.get()  # each says when its workers are there
    waited: list[float] = []
    try:
        yield waited
    finally:
        over.set()
        for _ in processes:
            waited += results.get()
        for process in processes:
            process.join()


def run_workers(place: Place, name: str, count: int, over: Event, results: Any) -> None:
    """Runs so many workers as threads until it is over; puts the seconds that their jobs waited."""
    waited: list[float] = []
    with connect(place.url, patience=5) as client:
        threads = [
            threading.Thread(target=_work, args=(place, client, f"{name}-{k}", over, waited))
            for k in range(count)
        ]
        for thread in threads:
            thread.start()
        results.put("there")
        for thread in threads:
            thread.join()
    results.put(waited)


def _work(place: Place, client: redis.Redis, name: str, over: Event, waited: list[float]) -> None:
    jobs, registry = place.jobs(client), WorkerRegistry(client, Keys(place.namespace))
    queue = Queue(client, name, lease=LEASE, keys=Keys(place.namespace))
    cause, advertised = WorkerLost("It fell silent."), 0.0
    while not over.is_set():
        if time.monotonic() - advertised > 2.0:
            registry.advertise(advertisement(name))
            advertised = time.monotonic()
        offers = queue.take(BATCH, block=0.5)
        claims = [
            jobs.claim(
                offer.job_id, offer.entry, offer.priority, name, cause=cause, is_shared=len(offers) > 1
            )
            for offer in offers
        ]
        for claim in claims:
            assert isinstance(claim, Claim)
            waited.append(time.time() - claim.job.created_at)
            jobs.beat(claim, "caption", 0.5)
            jobs.succeed(claim, ANSWER)


def advertisement(name: str) -> WorkerInfo:
    """Describes a worker with nine captioners, as the whole set of weights has."""
    captioners = [
        CaptionerInfo(
            name=f"captioner-{k}", weights_sha256="0" * 64, features={"image": "1" * 64}, seconds=0.3
        )
        for k in range(9)
    ]
    return WorkerInfo(
        name=name, pid=1, host="here", version="load", is_ready=True, device="cpu", started_at=0.0,
        captioners=captioners, default="captioner-0", memory={"worker": 10**8, "engine": 10**9},
    )  # fmt: skip


# ---- what one call costs in a fleet ----


def fleets(url: str, client: redis.Redis) -> Iterator[Row]:
    """Measures calls in fleets of several sizes; the peer is the smallest."""
    costs = {}
    for fleet in FLEETS:
        client.flushall()
        costs[fleet] = cost_of_calls(Place(url, f"fleet-{fleet}"), client, fleet)
    few = FLEETS[0]
    for fleet in FLEETS[1:]:
        for what, (ours, own) in costs[fleet].items():
            yield _row(
                f"Redis's CPU, {what}, {fleet:,} workers", ours, "µs", peer=costs[few][what][0],
                peer_name=f"{few} workers", note=f"{own:.0f} µs of the caller's own",
            )  # fmt: skip


def cost_of_calls(place: Place, client: redis.Redis, workers: int) -> dict[str, tuple[float, float]]:
    """Measures one call while so many workers live, each with a batch in hand.

    Args:
        place: an empty one.
        client: to its Redis.
        workers: how many.

    Returns:
        What was called → µs of Redis's CPU, and of the caller's.
    """
    keys, registry = Keys(place.namespace), WorkerRegistry(client, Keys(place.namespace), time_to_live=600)
    ensure_groups(client, keys)
    names = [f"sim-{k}" for k in range(workers)]
    for name in names:
        registry.advertise(advertisement(name))
    _give_batches(client, place, names)
    queue = Queue(client, "sim-0", lease=LEASE, keys=keys)
    _send(place, CALLS + 2)
    queue.take(1, block=0)  # it has looked for abandoned jobs; some of those below do
    calls: dict[str, Callable[[], object]] = {
        "take a batch": lambda: queue.take(BATCH, block=0),
        "advertise": lambda: registry.advertise(advertisement("sim-0")),
        "list the workers": registry.workers,
        "count who waits": lambda: waiting(client, keys),
    }
    return {what: _cost(client, call) for what, call in calls.items()}


def _cost(client: redis.Redis, call: Callable[[], object]) -> tuple[float, float]:
    spent, began = RedisTime(client), time.process_time()
    for _ in range(CALLS):
        call()
    return spent.seconds() / CALLS * 1e6, (time.process_time() - began) / CALLS * 1e6


def _give_batches(client: redis.Redis, place: Place, names: Sequence[str]) -> None:
    """Puts jobs in the workers' hands: claimed, their leases good."""
    keys = Keys(place.namespace)
    stream = keys.stream("normal")
    _send(place, BATCH * len(names))
    until = round(time.time() * 1000) + 10**9
    for name in names:
        reply: Any = client.xreadgroup(GROUP, name, {stream: ">"}, count=BATCH)
        with client.pipeline(transaction=False) as pipe:
            for _, fields in reply[0][1]:
                pipe.hset(
                    keys.job(fields["job"]), mapping={"state": "running", "worker": name, "lease": until}
                )
            pipe.execute()


class RedisTime:
    """Tells the CPU seconds that Redis's main thread has spent since this was made."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._began = self._now()

    def seconds(self) -> float:
        return self._now() - self._began

    def _now(self) -> float:
        told: Any = self._client.info("cpu")
        return float(told["used_cpu_user_main_thread"]) + float(told["used_cpu_sys_main_thread"])


def _memory(client: redis.Redis) -> int:
    told: Any = client.info("memory")
    return int(told["used_memory"]) - int(told.get("mem_clients_normal", 0))


def _entries(client: redis.Redis, place: Place) -> int:
    keys = Keys(place.namespace)
    return sum(int(client.xlen(keys.stream(priority))) for priority in PRIORITIES)


def _ended(client: redis.Redis, place: Place) -> int:
    return place.jobs(client).index.counts()["succeeded"]


def _wait_for(is_so: Any, seconds: float = 300.0) -> None:
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise TimeoutError("the simulated workers did not end their jobs")
        time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
