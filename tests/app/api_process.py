"""The API as a process of its own, which a test may end and start again."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import httpx

from app.settings import Settings
from tests.app.workers import environment_of, eventually


class ApiProcess:
    """``url`` stays the same from start to start."""

    def __init__(self, settings: Settings, **environment: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            **environment_of(settings),
            **environment,
            "REELWORD_PORT": str(port),
        }
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, "-m", "app", "api"], env=self._environment)
        eventually(self._answers, 60)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, "the API ended"
        try:
            return httpx.get(f"{self.url}/livez", timeout=2).status_code == 200
        except httpx.TransportError:
            return False

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends it by a signal and returns its exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def api_process(settings: Settings, **environment: str) -> Iterator[ApiProcess]:
    api = ApiProcess(settings, **environment)
    try:
        api.start()
        yield api
    finally:
        if api.process is not None and api.process.poll() is None:
            api.stop(signal.SIGKILL)
