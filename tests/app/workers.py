"""Worker processes for tests: started, killed, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from app.jobs.blobs import Blobs
from app.jobs.job import Job, Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from app.settings import Settings

PAUSE = 5.0  #: seconds for which a busy machine may stop a test, beside what is promised
PROGRAM = "from app.cli.service.run import worker; worker()"


class Service:
    """A namespace on a real Redis, a folder of blobs, and as many workers as a test starts."""

    def __init__(self, server: redis.Redis, url: str, settings: Settings) -> None:
        self.settings = settings.model_copy(update={"redis_url": url})
        self.jobs = Jobs.from_settings(server, self.settings)
        self.registry = WorkerRegistry(server, self.jobs.keys)
        self.blobs = Blobs(self.settings.blob_url, self.settings.staging)
        self.workers: list[subprocess.Popen[bytes]] = []

    def submit(
        self,
        video: Path,
        captioner: str | None = "echo",
        *,
        submission: Submission | None = None,
        **options: Any,
    ) -> str:
        job_id = uuid.uuid4().hex
        upload = f"uploads/{job_id}"
        self.blobs.write(upload, video.read_bytes())
        wanted = CaptionOptions.model_validate({"captioner": captioner, **options})
        return self.jobs.submit(job_id, wanted, upload, filename=video.name, submission=submission).id

    def job(self, job_id: str) -> Job:
        found = self.jobs.get(job_id)
        assert found is not None
        return found

    def holder(self, job_id: str) -> str:
        """The name of the worker that runs a job."""
        return str(self.jobs.server.hget(self.jobs.keys.job(job_id), "worker"))

    def wait(
        self, job_id: str, until: Callable[[Job], bool] = lambda job: job.is_over, seconds: float = 30
    ) -> Job:
        """The job once ``until`` holds of it."""
        eventually(lambda: until(self.job(job_id)), seconds)
        return self.job(job_id)

    def start_worker(self, seconds: float = 180, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a worker and waits until its models are loaded, so many seconds at most."""
        worker = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **environment_of(self.settings), **environment},
        )
        self.workers.append(worker)
        eventually(lambda: any(info.pid == worker.pid for info in self.registry.workers()), seconds)
        return worker

    def info(self, worker: subprocess.Popen[bytes]) -> WorkerInfo:
        return next(info for info in self.registry.workers() if info.pid == worker.pid)

    def stop_all(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGKILL)
            worker.wait()


def environment_of(settings: Settings) -> dict[str, str]:
    """The settings as environment variables."""
    fields = settings.model_dump(exclude_defaults=True)
    variables = {
        f"REELWORD_{name.upper()}": ",".join(value) if isinstance(value, tuple) else str(value)
        for name, value in fields.items()
    }
    variables["REDIS_URL"] = str(settings.redis_url)
    return variables


@contextmanager
def service(server: redis.Redis, url: str, settings: Settings) -> Iterator[Service]:
    running = Service(server, url, settings)
    try:
        yield running
    finally:
        running.stop_all()


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Waits until a condition holds; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"it did not happen within {seconds} s"
        time.sleep(0.02)


def child_pids(pid: int) -> Sequence[int]:
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]
