"""Kills what runs jobs, in every way, and prints how soon all was well and that nothing was lost or doubled.

    python -m benchmarks.crash [--fast]      make crash

Real worker processes, started again as ``serve`` does it, on an embedded Redis in a temporary folder, with
the real decoder and engine; ``--fast`` takes an engine without models. Exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np

from app.blobs import Blobs
from app.jobs import Job, Jobs
from app.keeper import Keeper
from app.options import CaptionOptions
from app.queue import ensure_groups, waiting
from app.redis_client import connect
from app.redis_server import RedisServer
from app.registry import Registry
from app.settings import Settings
from benchmarks._crash_engine import COLOURS

PATIENCE = 180.0  #: seconds after which a wait is a failure


@dataclass(frozen=True)
class Finding:
    """One measured promise. limit: what was promised, None where the number only informs."""

    what: str
    measured: float
    unit: str = "s"
    limit: float | None = None

    @property
    def is_kept(self) -> bool:
        return self.limit is None or self.measured <= self.limit

    def __str__(self) -> str:
        promise = "" if self.limit is None else f"   promised ≤ {self.limit:g}"
        verdict = "" if self.limit is None else ("   ok" if self.is_kept else "   BROKEN")
        return f"  {self.what:<66}{self.measured:8.2f} {self.unit:<2}{promise}{verdict}"


class Ordeal:
    """A service under test: its Redis, its workers, and every job that it was given."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = folder
        self.redis = RedisServer(folder / "redis")
        self._clips = {name: draw(folder / f"{name}.mp4", colour) for name, colour in COLOURS.items()}
        self._log = folder / "workers.log"
        self._engine = engine
        self.keepers: list[Keeper] = []
        self.expected: dict[str, str] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        with self.redis, self._log.open("ab") as output, connect(self.redis.url, PATIENCE) as server:
            settings = Settings(data=self.folder, redis_url=self.redis.url)
            self.output = output.fileno()
            self.jobs = Jobs.from_settings(server, settings)
            self.registry = Registry(server)
            self.blobs = Blobs(settings.blob_url, settings.staging)
            ensure_groups(server, self.jobs.keys)
            try:
                yield
            finally:
                self.stop_workers()

    def submit(self, clip: str, ends: str = "succeeded") -> str:
        job_id = uuid.uuid4().hex
        self.blobs.write(f"uploads/{job_id}", self._clips[clip].read_bytes())
        self.jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}")
        self.expected[job_id] = ends
        return job_id

    def start_worker(self) -> Keeper:
        environment = {
            "REDIS_URL": self.redis.url,
            "REELWORD_DATA": str(self.folder),
            "REELWORD_ENGINE": self._engine,
            "REELWORD_BATCH_JOBS": "1",
            "REELWORD_LOG_FORMAT": "json",
        }
        keeper = Keeper("worker", [sys.executable, "-m", "app", "worker"], environment, self.output)
        self.keepers.append(keeper)
        self.wait(lambda: any(info.pid == keeper.pid and info.is_ready for info in self.registry.workers()))
        return keeper

    def stop_workers(self) -> None:
        for keeper in self.keepers:
            keeper.terminate()
        for keeper in self.keepers:
            keeper.wait(time.monotonic() + 20)
        self.keepers = []

    def wait(self, condition: Callable[[], bool]) -> float:
        """Seconds until the condition holds; meanwhile dead workers are started again."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > PATIENCE:
                raise SystemExit(
                    f"  gave up after {PATIENCE:g} s; the workers' log: {self._log.read_text()[-4000:]}"
                )
            for keeper in self.keepers:
                keeper.look()
            time.sleep(0.02)
        return time.monotonic() - began

    def job(self, job_id: str) -> Job:
        found = self.jobs.get(job_id)
        assert found is not None, f"{job_id} is lost"
        return found

    def wait_for(self, job_id: str, condition: Callable[[Job], bool] = lambda job: job.is_over) -> float:
        return self.wait(lambda: condition(self.job(job_id)))

    def wait_for_all(self, ids: Sequence[str]) -> float:
        return sum(self.wait_for(job_id) for job_id in ids)

    def wait_until_at_work(self, job_id: str) -> None:
        self.wait_for(job_id, lambda job: job.state == "running" and job.stage == "extract")

    def successes(self) -> Counter[str]:
        """How often each job's success was written, by the workers' own log."""
        lines = (line for line in self._log.read_text().splitlines() if line.startswith("{"))
        events = (json.loads(line) for line in lines)
        return Counter(event["job"] for event in events if event.get("event") == "job succeeded")


def plain_jobs(ordeal: Ordeal) -> Iterator[Finding]:
    yield Finding("a worker starts, models loaded", ordeal.wait(lambda: bool(ordeal.start_worker())))
    totals = []
    for _ in range(5):
        job_id = ordeal.submit("plain")
        ordeal.wait_for(job_id)
        totals.append(ordeal.job(job_id).timings["total"] or 0.0)
    yield Finding("a job on an idle worker, median of 5", statistics.median(totals))


def worker_killed(ordeal: Ordeal) -> Iterator[Finding]:
    lost = ordeal.submit("slow")
    ordeal.wait_until_at_work(lost)
    backlog = [ordeal.submit("plain") for _ in range(20)]
    pid = ordeal.keepers[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    again = ordeal.wait_for(lost, lambda job: job.attempt == 2)
    done = sum(ordeal.job(job_id).is_over for job_id in backlog)
    yield Finding("worker killed, 20 jobs behind: its job runs again after", again, limit=15.0)
    yield Finding("  jobs of the backlog that went before it", done, "", limit=len(backlog) - 1)
    yield Finding("  and is done, after", again + ordeal.wait_for(lost))
    ordeal.wait_for_all(backlog)


def engine_killed(ordeal: Ordeal) -> Iterator[Finding]:
    job_id = ordeal.submit("slow")
    ordeal.wait_until_at_work(job_id)
    os.kill(engine_of(ordeal.keepers[0].pid), signal.SIGKILL)
    again = ordeal.wait_for(job_id, lambda job: job.attempt == 2)
    yield Finding("engine killed: its job is on its next attempt after", again, limit=1.0)
    yield Finding("  and is done, models loaded again, after", again + ordeal.wait_for(job_id))


def poison(ordeal: Ordeal) -> Iterator[Finding]:
    job_id = ordeal.submit("poison", ends="failed")
    others = [ordeal.submit("plain") for _ in range(5)]
    yield Finding("a job that kills its engine each time has failed after", ordeal.wait_for(job_id))
    job = ordeal.job(job_id)
    is_named = job.error is not None and job.error["code"] == "engine_crashed"
    yield Finding("  attempts that it had", job.attempt, "", limit=3)
    yield Finding("  failed under another name than engine_crashed", not is_named, "", limit=0)
    yield Finding("  five jobs behind it are done after", ordeal.wait_for_all(others))
    yield Finding(
        "  attempts that they needed, at most", max(ordeal.job(i).attempt for i in others), "", limit=1
    )


def cancel(ordeal: Ordeal) -> Iterator[Finding]:
    running, queued = ordeal.submit("slow", "canceled"), ordeal.submit("plain", "canceled")
    ordeal.wait_until_at_work(running)
    ordeal.jobs.cancel(queued)
    ordeal.blobs.remove(f"uploads/{queued}")  # as the API does
    ordeal.jobs.cancel(running)
    yield Finding("canceling a running job takes", ordeal.wait_for(running), limit=2.0)
    next_one = ordeal.submit("plain")
    yield Finding("  the next job is done after", ordeal.wait_for(next_one))


def two_workers(ordeal: Ordeal) -> Iterator[Finding]:
    one = time_jobs(ordeal, 4)
    ordeal.start_worker()
    shares: Counter[str] = Counter()
    two = time_jobs(ordeal, 4, shares)
    yield Finding("4 jobs of 3 s, one worker", one)
    yield Finding("4 jobs of 3 s, two workers", two, limit=0.8 * one)
    yield Finding("  jobs of the busier one", max(shares.values()), "", limit=3)


def time_jobs(ordeal: Ordeal, count: int, shares: Counter[str] | None = None) -> float:
    """Seconds for slow jobs; shares: jobs by the worker that ran them."""
    ids = [ordeal.submit("slow") for _ in range(count)]
    workers: dict[str, str] = {}

    def all_over() -> bool:
        for job_id in ids:
            if name := ordeal.jobs.server.hget(ordeal.jobs.keys.job(job_id), "worker"):
                workers[job_id] = str(name)
        return all(ordeal.job(job_id).is_over for job_id in ids)

    seconds = ordeal.wait(all_over)
    if shares is not None:
        shares.update(workers.values())
    return seconds


def redis_restarted(ordeal: Ordeal) -> Iterator[Finding]:
    ids = [ordeal.submit("slow") for _ in range(3)]
    ordeal.wait_until_at_work(ids[0])
    pids = [keeper.pid for keeper in ordeal.keepers]
    assert ordeal.redis.pid is not None
    os.kill(ordeal.redis.pid, signal.SIGKILL)
    time.sleep(1.0)
    ordeal.redis.start()
    yield Finding("Redis killed, back after 1 s: three jobs are done after", ordeal.wait_for_all(ids))
    lost = sum(keeper.pid != pid for keeper, pid in zip(ordeal.keepers, pids, strict=True))
    yield Finding("  workers that did not live through it", lost, "", limit=0)
    attempts = max(ordeal.job(job_id).attempt for job_id in ids)
    yield Finding("  attempts that the jobs needed, at most", attempts, "", limit=1)


def everything_killed(ordeal: Ordeal) -> Iterator[Finding]:
    ids = [ordeal.submit("slow"), *(ordeal.submit("plain") for _ in range(9))]
    ordeal.wait_until_at_work(ids[0])
    for pid in [*(keeper.pid for keeper in ordeal.keepers), ordeal.redis.pid]:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
    ordeal.redis.start()
    yield Finding("all killed and started again: 10 accepted jobs are done after", ordeal.wait_for_all(ids))


def tally(ordeal: Ordeal) -> Iterator[Finding]:
    """Every job that was accepted has the end it should have, once."""
    states = {job_id: ordeal.job(job_id).state for job_id in ordeal.expected}
    wrong = [job_id for job_id, state in states.items() if state != ordeal.expected[job_id]]
    successes = ordeal.successes()
    yield Finding("jobs accepted", len(states), "")
    for state, count in sorted(Counter(states.values()).items()):
        yield Finding(f"  {state}", count, "")
    yield Finding("  that did not end as they should", len(wrong), "", limit=0)
    yield Finding("  that succeeded twice", sum(count > 1 for count in successes.values()), "", limit=0)
    yield Finding("  that still wait", waiting(ordeal.jobs.server), "", limit=0)
    left = [job_id for job_id in states if ordeal.blobs.exists(f"uploads/{job_id}")]
    yield Finding("  whose upload is still there", len(left), "", limit=0)


ORDEALS = (
    plain_jobs,
    worker_killed,
    engine_killed,
    poison,
    cancel,
    two_workers,
    redis_restarted,
    everything_killed,
    tally,
)


def engine_of(worker: int | None) -> int:
    """The pid of a worker's engine, from /proc."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(status.read_text().rsplit(")", 1)[1].split()[1])
            command = (status.parent / "cmdline").read_text()
        except OSError:  # it ended while we looked
            continue
        if parent == worker and "app.engine_child" in command:
            return int(status.parent.name)
    raise SystemExit("  the worker has no engine")


def draw(path: Path, colour: tuple[int, int, int]) -> Path:
    """Two seconds of one colour."""
    picture = np.full((96, 128, 3), colour, np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for _ in range(20):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fast", action="store_true", help="an engine without models")
    engine = "Sleeping" if parser.parse_args().fast else "Obedient"
    broken = 0
    with tempfile.TemporaryDirectory(prefix="reelword-crash-") as folder:
        ordeal = Ordeal(Path(folder), f"benchmarks._crash_engine:{engine}")
        with ordeal.running():
            for step in ORDEALS:
                print(step.__name__.replace("_", " "), flush=True)
                for finding in step(ordeal):
                    print(finding, flush=True)
                    broken += not finding.is_kept
    print(f"{broken} promises broken" if broken else "all promises kept: nothing lost, nothing doubled")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
