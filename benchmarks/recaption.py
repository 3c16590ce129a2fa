"""How soon is a film captioned again? What kept features save, from a worker's claim to the job's end.

    python -m benchmarks.recaption [--captioners stats,g2l] [--rounds 10] [--clip FILE]

One worker with the real engine, on a Redis of its own. In each round a file that no job had before is
captioned by the first captioner, which reads it, and then by all of them, of which those need not that share
its streams. Seconds are Redis's: they are whole milliseconds, and have nothing of the queue in them.
"""

from __future__ import annotations

import hashlib
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.jobs.blobs import Blobs
from app.jobs.job import Job, Keys, Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerRegistry
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from benchmarks.support.joined_film import encode_parts, write_joined

CLIP_SECONDS = 10.0
START_SECONDS, JOB_SECONDS = 300.0, 120.0
GOAL = 0.15  #: seconds for the second captioner of the same film
DECODED, KEPT = "file read", "features kept"


@dataclass(frozen=True)
class Timed:
    """Holds the seconds of one job: from claim to end, and of its stages."""

    captioner: str
    how: str
    run: float
    decode: float
    extract: float
    caption: float

    @classmethod
    def of(cls, job: Job) -> Timed:
        spent: Mapping[str, float | None] = job.timings
        decode, extract, caption = (spent.get(stage) or 0.0 for stage in ("decode", "extract", "caption"))
        run = (job.took or 0.0) - (job.waited or 0.0)
        return cls(str(job.options.captioner), DECODED if decode else KEPT, run, decode, extract, caption)


@dataclass(frozen=True)
class Bench:
    """Sends jobs to a worker, as the API would."""

    jobs: Jobs
    blobs: Blobs

    def caption(self, video: bytes, captioner: str) -> Job:
        """Runs one job to its end. Raises SystemExit where it does not succeed."""
        job_id = uuid.uuid4().hex
        self.blobs.write(f"uploads/{job_id}", video)
        told = Submission(sha256=hashlib.sha256(video).hexdigest())
        options = CaptionOptions(captioner=captioner)
        job = self.jobs.submit(job_id, options, f"uploads/{job_id}", submission=told)
        deadline = time.monotonic() + JOB_SECONDS
        while not job.is_over and time.monotonic() < deadline:
            time.sleep(0.005)
            job = self.jobs.get(job_id) or job
        if job.state != "succeeded":
            raise SystemExit(f"A job of {captioner} is {job.state}: {job.error}")
        time.sleep(0.1)  # for its features to be kept
        return job


def main(
    captioners: Annotated[str, typer.Option(help="With commas between; the first one reads the file.")] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Files that are captioned.")] = 10,
    clip: Annotated[Path | None, typer.Option(help="By default ten seconds of drawn patterns.")] = None,
) -> None:
    """Print a row for each captioner: medians, and in brackets the quickest and the slowest."""
    with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder, "redis")) as redis:
        video = clip or Path(folder, "clip.mp4")
        if clip is None:
            write_joined(video, encode_parts([]), CLIP_SECONDS)
        settings = Settings(data=Path(folder), redis_url=redis.url, batch_jobs=1)
        with connect(redis.url, patience=5) as server, _worker(settings):
            jobs = Jobs.from_settings(server, settings)
            names = _ready(WorkerRegistry(server, Keys(settings.namespace)))
            wanted = [name for name in captioners.split(",") if name] or names
            bench = Bench(jobs, Blobs(settings.blob_url, settings.staging))
            _print(list(_measure(bench, video.read_bytes(), wanted, rounds)))


@contextmanager
def _worker(settings: Settings) -> Iterator[None]:
    environment = {
        **os.environ,
        "REDIS_URL": str(settings.redis_url),
        "REELWORD_DATA": str(settings.data),
        "REELWORD_LOG_LEVEL": "error",
    }
    worker = subprocess.Popen([sys.executable, "-m", "app", "worker"], env=environment)
    try:
        yield
    finally:
        worker.send_signal(signal.SIGTERM)
        worker.wait()


def _ready(registry: WorkerRegistry) -> list[str]:
    """Waits for a worker with loaded models, and lists those of its captioners that look at streams."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for worker in registry.workers():
            if worker.is_ready:
                return [info.name for info in worker.captioners if info.features]
        time.sleep(0.2)
    raise SystemExit("The worker did not become ready.")


def _measure(bench: Bench, video: bytes, names: Sequence[str], rounds: int) -> Iterator[Timed]:
    for turn in range(rounds + 1):
        file = video + turn.to_bytes(8, "big")  # another digest; what stands behind a file is not read
        found = [Timed.of(bench.caption(file, name)) for name in (names[0], *names)]
        if turn:  # the first round warms up
            yield from found


def _print(found: Sequence[Timed]) -> None:
    print(f"{platform.machine()}, {os.cpu_count()} cores; milliseconds, median (least to most)\n")
    print("| captioner | video | claim to end | decode | extract | caption |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, how in dict.fromkeys((each.captioner, each.how) for each in found):
        rows = [each for each in found if (each.captioner, each.how) == (name, how)]
        parts = ("run", "decode", "extract", "caption")
        cells = [_spread([getattr(row, part) for row in rows]) for part in parts]
        print(f"| {name} | {how} | {' | '.join(cells)} |")
    again = [each.run for each in found if each.how == KEPT]
    within = sum(seconds <= GOAL for seconds in again)
    print(f"\n{within} of {len(again)} runs from kept features took {GOAL * 1000:.0f} ms at most.")


def _spread(seconds: Sequence[float]) -> str:
    least, middle, most = (round(1000 * f(seconds)) for f in (min, statistics.median, max))
    return f"{middle} ({least} to {most})"


if __name__ == "__main__":
    typer.run(main)
