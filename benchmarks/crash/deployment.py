"""``make serve`` as people start it, with four workers, in a temporary folder, and all that is asked of it.

What the trials do to it they do from outside: signals to its processes, bytes on its disk, commands to its
Redis. What they learn they learn by HTTP, from Redis's records where HTTP does not say it, and from the log.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil
import redis

from app.jobs.job import Keys
from app.jobs.keeping.sweeper import STAGED_AGE
from app.jobs.worker_registry import WorkerRegistry
from app.settings import Settings
from benchmarks.crash.colours import COLOURS, draw
from extractors.child_process import ROOT

MIB = 2**20
WORKERS = 4
PATIENCE = 240.0  #: seconds after which a wait is a failure
READY = "Reelword is ready at "
#: Lines of several processes may run into one another, a line's own text does not.
SUCCESS = re.compile(r'"job": "([0-9a-f]{32})"[^{}]*"event": "job succeeded"')
OVER = ("succeeded", "failed", "canceled", "expired")
SWEEP_SECONDS = 5
COLLECTED_SECONDS = STAGED_AGE + 4 * SWEEP_SECONDS  #: by then every leftover is gone


class GaveUp(Exception):
    """Something did not happen in time."""


class Deployment:
    """A running service, and every job that it accepted with the end that each should have.

    Args:
        folder: where everything lies, a small disk where the trial of a full one shall be held.
        engine: what its workers run, as ``module:name``.
        environment: settings beside those that every trial has.
    """

    def __init__(self, folder: Path, engine: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = folder / "data"
        self.log = folder / "log"
        self.expected: dict[str, str] = {}
        self.address = ""
        self._client = httpx.Client(timeout=30, verify=False)  # verify: all is on this machine, without TLS
        self._engine, self._environment = engine, dict(environment or {})
        self._process: subprocess.Popen[str] | None = None
        self._clips = {name: draw(folder / f"{name}.mp4", colour) for name, colour in COLOURS.items()}
        self.data.mkdir()

    # ---- its processes ----

    @property
    def settings(self) -> Settings:
        return Settings(data=self.data, redis_url=f"unix://{self.data}/redis/redis.sock")

    def start(self) -> float:
        """Starts it and returns the seconds until it is ready with all workers."""
        began = time.monotonic()
        environment = {
            "REELWORD_DATA": str(self.data),
            "REELWORD_ENGINE": self._engine,
            "REELWORD_WORKERS": str(WORKERS),
            "REELWORD_MIN_FREE_BYTES": str(64 * MIB),
            "REELWORD_SWEEP_SECONDS": str(SWEEP_SECONDS),
            "REELWORD_FEATURE_CACHE_BYTES": "0",  # a few clips are sent often, and each is to be looked at
            "REELWORD_LOG_FORMAT": "json",
            "REDIS_URL": "",
            "PORT": "0",
            **self._environment,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "app", "serve"],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line.startswith(READY):
            raise GaveUp("serve ended without being ready")
        self.address = line.removeprefix(READY)
        self.wait(self.is_whole)
        return time.monotonic() - began

    def kill(self) -> list[psutil.Process]:
        """Kills ``serve`` alone and returns what it had started."""
        assert self._process is not None
        everyone = list(psutil.Process(self._process.pid).children(recursive=True))
        self._process.kill()
        self._end()
        return everyone

    def stop(self) -> list[psutil.Process]:
        """Ends it as Ctrl-C does, and returns what it had started."""
        if self._process is None:
            return []
        everyone = list(psutil.Process(self._process.pid).children(recursive=True))
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._end()
        return everyone

    def _end(self) -> None:
        assert self._process is not None
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = None

    def pids(self, words: str, parent: int | None = None) -> list[int]:
        """Its processes whose command line has these words."""
        assert self._process is not None
        children = psutil.Process(parent or self._process.pid).children(recursive=True)
        return [child.pid for child in children if words in command_of(child)]

    @property
    def redis_pid(self) -> int:
        (pid,) = self.pids("redis.sock")
        return pid

    def is_whole(self) -> bool:
        """All workers have loaded their models, and have no captioner left to measure while they are idle."""
        answer = self.ask("/readyz")
        is_ready = answer is not None and answer.status_code == 200 and answer.json()["workers"] == WORKERS
        return is_ready and self.is_measured()

    def is_measured(self) -> bool:
        with self.redis() as client:
            workers = WorkerRegistry(client, Keys()).workers()
        return all(info.seconds is not None for worker in workers for info in worker.captioners)

    # ---- by HTTP ----

    def ask(self, path: str, method: str = "GET", **rest: Any) -> httpx.Response | None:
        """The answer, or None where there is nobody to give one."""
        try:
            return self._client.request(method, self.address + path, **rest)
        except httpx.HTTPError:
            return None

    def post(self, clip: str) -> httpx.Response | None:
        """One upload, whatever comes of it."""
        return self.ask("/caption", "POST", files={"video": (f"{clip}.mp4", self._clips[clip].read_bytes())})

    def clip(self, name: str) -> Path:
        """The file of a clip."""
        return self._clips[name]

    def submit(self, clip: str, ends: str = "succeeded") -> str:
        """A job that has to be accepted."""
        answer = self.post(clip)
        if answer is None or answer.status_code != 202:
            raise GaveUp(f"an upload was not accepted: {answer and answer.text}")
        return self.note(answer, ends)

    def note(self, answer: httpx.Response, ends: str = "succeeded") -> str:
        """Keeps in mind a job that was accepted."""
        job_id = str(answer.json()["id"])
        self.expected[job_id] = ends
        return job_id

    def job(self, job_id: str) -> dict[str, Any] | None:
        """The job's document; None while nobody can say."""
        answer = self.ask(f"/jobs/{job_id}")
        if answer is None or answer.status_code == 503:
            return None
        if answer.status_code != 200:
            raise GaveUp(f"{job_id} is lost: {answer.text}")
        document: dict[str, Any] = answer.json()
        return document

    def wait(self, condition: Callable[[], bool], seconds: float = PATIENCE) -> float:
        """Seconds until the condition holds."""
        began = time.monotonic()
        while not condition():
            if time.monotonic() - began > seconds:
                raise GaveUp(f"it did not happen within {seconds:g} s")
            time.sleep(0.05)
        return time.monotonic() - began

    def wait_for(self, job_id: str, condition: Callable[[dict[str, Any]], bool]) -> float:
        def holds() -> bool:
            document = self.job(job_id)
            return document is not None and condition(document)

        return self.wait(holds)

    def wait_for_all(self, ids: Sequence[str]) -> float:
        """Seconds until all of these are over."""
        return sum(self.wait_for(job_id, lambda job: job["state"] in OVER) for job_id in ids)

    def wait_until_at_work(self, job_id: str) -> None:
        self.wait_for(job_id, lambda job: job["state"] == "running" and job["stage"] == "extract")

    # ---- by its Redis, its disk and its log ----

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        with redis.Redis(
            unix_socket_path=f"{self.data}/redis/redis.sock", decode_responses=True, socket_timeout=30
        ) as client:
            yield client

    def record(self, job_id: str) -> dict[str, str]:
        with self.redis() as client:
            fields: Any = client.hgetall(f"reelword:job:{job_id}")
        return dict(fields)

    def redis_now(self) -> float:
        with self.redis() as client:
            seconds, micros = client.time()
        return float(seconds) + float(micros) / 1e6

    def worker_pid(self, job_id: str) -> int:
        """The process that runs a job: its name is host-pid-suffix."""
        return int(self.record(job_id)["worker"].rsplit("-", 2)[1])

    def free(self) -> int:
        return shutil.disk_usage(self.data).free

    def names(self, folder: str) -> list[str]:
        """What lies below a folder of the data."""
        place = self.data / folder
        return sorted(file.name for file in place.iterdir()) if place.exists() else []

    def successes(self) -> Counter[str]:
        """How often each job's success was written, by the workers' own log."""
        return Counter(SUCCESS.findall(self.log.read_text()))


def command_of(process: psutil.Process) -> str:
    """Its command line; empty for one that has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:  # a zombie is one too
        return ""
