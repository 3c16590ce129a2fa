"""Runs the service for a benchmark: started on a data folder and a port of its own, watched, and stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx
import psutil

ROOT = Path(__file__).resolve().parents[2]
READY = "Reelword is ready at "
PATIENCE = 300.0  #: seconds for jobs that were sent to end
#: Words of a command line → what the process is, the first that fits.
ROLES: Mapping[str, str] = {
    "app.worker.engine.child": "engine",
    "extractors.decoder": "decoder",
    "app worker": "worker",
    "app api": "api",
    "valkey": "redis",
    "redis": "redis",
}


class ServedInstance:
    """Is a running ``serve``; as a context manager it is stopped at the end.

    Args:
        data: its data folder, made where it is not there.
        environment: settings beside those of this process.
    """

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None) -> None:
        self._data, self._environment = data, dict(environment or {})
        self.address, self.start_seconds = "", 0.0

    def __enter__(self) -> ServedInstance:
        self._data.mkdir(parents=True, exist_ok=True)
        settings = {
            "REELWORD_DATA": str(self._data),
            "REDIS_URL": "",
            "PORT": "0",
            "REELWORD_LOG_LEVEL": "warning",
        }
        began = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "app", "serve"],
            cwd=ROOT,
            env={**os.environ, **settings, **self._environment},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        self.start_seconds = time.monotonic() - began
        if not line.startswith(READY):
            self.__exit__(None, None, None)
            raise SystemExit("serve ended without being ready")
        self.address = line.removeprefix(READY).split()[0]  # behind it, how to make a key
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def cpu_seconds(self) -> dict[str, float]:
        """Returns the processor seconds of each kind of process so far."""
        spent: dict[str, float] = defaultdict(float)
        for process in self._processes():
            with process.oneshot():
                times = process.cpu_times()
                spent[_role_of(process)] += times.user + times.system
        return dict(spent)

    def memory(self) -> dict[str, int]:
        """Returns the bytes in RAM of each kind of process."""
        sizes: dict[str, int] = defaultdict(int)
        for process in self._processes():
            sizes[_role_of(process)] += process.memory_info().rss
        return dict(sizes)

    def _processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def client(self) -> httpx.Client:
        """Opens a client of its API."""
        return httpx.Client(base_url=self.address, timeout=60)


def post_clip(client: httpx.Client, video: bytes) -> tuple[str, float]:
    """Sends a clip, and returns the job's id and the seconds until it was accepted."""
    began = time.perf_counter()
    answer = client.post("/caption", files={"video": ("clip.mp4", video)})
    spent = time.perf_counter() - began
    answer.raise_for_status()
    return str(answer.json()["id"]), spent


def await_jobs(client: httpx.Client, jobs: list[str], pause: float = 0.25) -> list[dict[str, object]]:
    """Waits until jobs have succeeded.

    Args:
        client: of the service.
        jobs: their ids, in the order in which they were sent.
        pause: seconds between two looks, which cost the service something, too.

    Returns:
        Their documents.

    Raises:
        SystemExit: one did not succeed.
    """
    deadline = time.monotonic() + PATIENCE
    documents = []
    for job in jobs:
        while True:
            document = client.get(f"/jobs/{job}").json()
            if document["state"] not in ("queued", "running"):
                break
            if time.monotonic() > deadline:
                raise SystemExit(f"job {job} is {document['state']} after {PATIENCE:.0f} s")
            time.sleep(pause)
        if document["state"] != "succeeded":
            raise SystemExit(f"job {job} is {document['state']}: {document['error']}")
        documents.append(document)
    return documents


def copies_of(video: bytes, count: int, first: int = 0) -> list[bytes]:
    """Returns files that show the same and of which no two are the same, so that no features are kept."""
    return [video + number.to_bytes(8, "big") for number in range(first, first + count)]


def _role_of(process: psutil.Process) -> str:
    try:
        words = " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return "gone"
    return next((role for part, role in ROLES.items() if part in words), "serve")
