"""Measures how many jobs a second one worker does with a full queue, beside the worker of another checkout.

    python -m benchmarks.pipeline [--quick] [--results FILE] [--peer FOLDER] [--jobs 40]

Each side is one real worker with the demo captioner and all defaults, on a Redis of its own making; both are
up all the while and take turns, so that a busy moment hurts both. ``--peer`` is the root of a checkout of the
version before (``git worktree add FOLDER COMMIT``); without one the peer is this worker with one job at a
time, which is how long a batch of one takes. Processor seconds are of the worker and its children.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from app.jobs.blobs import Blobs
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerRegistry
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from benchmarks.support.joined_film import encode_parts, write_joined
from benchmarks.support.rows import Row, add_options, tell
from extractors.child_process import ROOT

CLIP_SECONDS = 10.0
CAPTIONER = "stats"
START_SECONDS, ALL_SECONDS = 300.0, 600.0
PEER = "the version before"


@dataclass(frozen=True)
class Side:
    """Holds one worker that is up, and what sends it jobs."""

    jobs: Jobs
    blobs: Blobs
    process: psutil.Process

    def run(self, video: bytes, count: int) -> tuple[float, float]:
        """Fills the queue and empties it; returns the seconds that took, and the processor seconds."""
        began, spent = time.monotonic(), self._cpu_seconds()
        left = {self._submit(video) for _ in range(count)}
        while left and time.monotonic() - began < ALL_SECONDS:
            time.sleep(0.02)
            left = {job_id for job_id in left if not self._is_over(job_id)}
        if left:
            raise SystemExit(f"{len(left)} of {count} jobs are not over after {ALL_SECONDS:.0f} s")
        return time.monotonic() - began, self._cpu_seconds() - spent

    def _submit(self, video: bytes) -> str:
        job_id = uuid.uuid4().hex
        self.blobs.write(f"uploads/{job_id}", video)
        return self.jobs.submit(job_id, CaptionOptions(captioner=CAPTIONER), f"uploads/{job_id}").id

    def _is_over(self, job_id: str) -> bool:
        job = self.jobs.get(job_id)
        if job is not None and job.is_over and job.state != "succeeded":
            raise SystemExit(f"a job is {job.state}: {job.error}")
        return job is not None and job.is_over

    def _cpu_seconds(self) -> float:
        family = [self.process, *self.process.children(recursive=True)]
        return sum(float(each.user + each.system) for each in (member.cpu_times() for member in family))


def main() -> None:
    """Measures both sides in turns and tells the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    parser.add_argument("--peer", type=Path, help="root of a checkout of the version before")
    parser.add_argument("--jobs", type=int, default=40, help="clips in the queue")
    asked = parser.parse_args()
    jobs, rounds = (min(asked.jobs, 12), 1) if asked.quick else (asked.jobs, 3)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        redis = stack.enter_context(RedisServer(folder / "redis"))
        video = write_clip(folder / "clip.mp4")
        alone: Mapping[str, str] = {} if asked.peer else {"REELWORD_BATCH_JOBS": "1"}
        sides = {
            "ours": stack.enter_context(worker(folder / "ours", redis.url, ROOT, {})),
            "peer": stack.enter_context(worker(folder / "peer", redis.url, asked.peer or ROOT, alone)),
        }
        for side in sides.values():
            side.run(video, 4)
        taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(rounds):
            for name, side in sides.items():
                taken[name].append(side.run(video, jobs))
    tell(rows(taken, jobs, PEER if asked.peer else "one job at a time"), asked.results)


def rows(taken: Mapping[str, list[tuple[float, float]]], jobs: int, peer: str) -> list[Row]:
    """Makes the rows of both sides' rounds.

    Args:
        taken: side → seconds and processor seconds of each round.
        jobs: of a round.
        peer: who the peer is.
    """
    rate = {name: statistics.median(jobs / seconds for seconds, _ in of) for name, of in taken.items()}
    spent = {name: statistics.median(cpu / jobs for _, cpu in of) for name, of in taken.items()}
    repeats, note = len(taken["ours"]), f"{jobs} clips of {CLIP_SECONDS:.0f} s, captioner {CAPTIONER}"
    return [
        Row(
            "pipeline", "full queue, one worker", rate["ours"], "jobs/s", rate["peer"], peer,
            better="more", goal="ratio >= 1.8", repeats=repeats, note=note,
        ),
        Row(
            "pipeline", "processor time a job", spent["ours"], "s", spent["peer"], peer,
            repeats=repeats, note=note,
        ),
    ]  # fmt: skip


def write_clip(file: Path) -> bytes:
    """Draws ten seconds of moving patterns, and returns the file's bytes."""
    write_joined(file, encode_parts([]), CLIP_SECONDS)
    return file.read_bytes()


@contextmanager
def worker(folder: Path, redis_url: str, root: Path, extra: Mapping[str, str]) -> Iterator[Side]:
    """Runs the worker of a checkout until its captioner is measured, and ends it afterwards.

    Args:
        folder: of its data.
        redis_url: of the server that both sides use, each in a namespace of its own.
        root: of the checkout.
        extra: environment variables beside those of both.
    """
    settings = Settings(data=folder, redis_url=redis_url, namespace=folder.name)
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "REDIS_URL": redis_url,
        "REELWORD_DATA": str(folder),
        "REELWORD_NAMESPACE": folder.name,
        "REELWORD_CAPTIONERS": CAPTIONER,
        "REELWORD_FEATURE_CACHE_BYTES": "0",  # one clip is sent often, and each is to be looked at
        "REELWORD_LOG_LEVEL": "error",
        **extra,
    }
    command = [sys.executable, "-m", "app", "worker"]
    process = subprocess.Popen(command, cwd=root, env=environment)
    try:
        with connect(redis_url, patience=5) as server:
            wait_until_ready(WorkerRegistry(server, Keys(folder.name)))
            jobs = Jobs.from_settings(server, settings)
            yield Side(jobs, Blobs(settings.blob_url, settings.staging), psutil.Process(process.pid))
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def wait_until_ready(registry: WorkerRegistry) -> None:
    """Waits until a worker has loaded its models and measured its captioner."""
    deadline = time.monotonic() + START_SECONDS
    while not any(info.is_ready and all(c.seconds for c in info.captioners) for info in registry.workers()):
        if time.monotonic() > deadline:
            raise SystemExit(f"no worker is ready after {START_SECONDS:.0f} s")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
