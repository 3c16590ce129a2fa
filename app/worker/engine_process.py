"""The worker's handle on its engine, the one child that holds models.

The child is started ahead, loads its models once and answers lists of videos. Frames travel in memory that
both map, everything else through a pipe. Native code in the child can crash, hang or hold its interpreter's
lock: the parent notices a death at once and can end it at any moment.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import structlog

from app.errors import EngineStartFailed, JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report
from app.settings import Settings
from app.worker.shared_frames import shared_memory, write_frames
from extractors.features import Frames

ROOT = Path(__file__).resolve().parents[2]
log = structlog.get_logger(__name__)


class EngineDied(Exception):
    """The engine ended before it had answered; the next ``start`` makes a new one."""


class EngineRaised(Exception):
    """The engine met an error that it did not expect, and lives on."""


class EngineProcess:
    """One engine at a time. One thread starts and uses it; any thread may ``kill`` it.

    The child also ends when the *thread* that started it ends (that is what Linux watches).
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._link: Connection | None = None
        self._shared: int | None = None
        self._guard = threading.RLock()  # a signal handler may kill while its thread starts one
        self.info: EngineInfo | None = None
        self.starts = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def is_ready(self) -> bool:
        """Its models are loaded and it lives."""
        return self.info is not None and self.is_alive

    def start(self) -> EngineInfo:
        """A warm engine: the one there is, or a new one. Raises EngineStartFailed."""
        if self.info is not None and self.is_alive:
            return self.info
        self.close()
        began = time.monotonic()
        log.info("engine starting")
        self._spawn()
        self.starts += 1
        try:
            self.info = self._await_warm()
        except EngineDied as error:
            self.close()
            raise EngineStartFailed(f"The engine ended while it loaded its models: {error}") from error
        except BaseException:
            self.close()
            raise
        log.info("engine ready", pid=self.pid, seconds=round(time.monotonic() - began, 2))
        return self.info

    def _spawn(self) -> None:
        link, far_end = Pipe()
        self._link, self._shared = link, shared_memory()
        threads = str(self._settings.threads)
        command = [
            sys.executable,
            "-m",
            "app.worker.engine_child",
            far_end.fileno(),
            self._shared,
            os.getpid(),
        ]
        process = subprocess.Popen(
            [str(part) for part in command],
            pass_fds=(far_end.fileno(), self._shared),
            cwd=ROOT,
            # Before numpy is imported there: pools of threads starve each other on a few cores.
            env={**os.environ, "OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads},
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
        )
        far_end.close()
        with self._guard:
            self._process = process
        link.send(self._settings)

    def _await_warm(self) -> EngineInfo:
        assert self._link is not None
        if not self._link.poll(self._settings.engine_start_seconds):
            raise EngineStartFailed(
                f"The engine was not warm within {self._settings.engine_start_seconds} s."
            )
        kind, content = self._receive()
        if kind == "raised":
            raise EngineStartFailed(f"The engine does not start: {content}")
        assert isinstance(content, EngineInfo)
        return content

    def run(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        """Captions videos together. Raises EngineDied, EngineRaised."""
        assert self._link is not None
        assert self._shared is not None
        places = write_frames(videos, self._shared)
        try:
            self._link.send((places, list(options)))
        except OSError as error:
            raise self._death() from error
        while True:
            kind, content = self._receive()
            if kind == "progress":
                report(*content)
            elif kind == "raised":
                raise EngineRaised(content)
            else:
                answers: list[EngineAnswer | JobFailure] = content
                return answers

    def _receive(self) -> tuple[str, Any]:
        assert self._link is not None
        try:
            message: tuple[str, Any] = self._link.recv()
        except (EOFError, OSError, pickle.UnpicklingError) as error:
            raise self._death() from error
        return message

    def _death(self) -> EngineDied:
        """How it ended. Its end of the pipe is closed, so it is dead or about to be."""
        assert self._process is not None
        try:
            status = self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return EngineDied(_how(status))

    def kill(self) -> None:
        """Ends the engine at once, whatever it does; a running ``run`` raises EngineDied."""
        with self._guard:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Ends the engine, if there is one."""
        self.kill()
        self.info = None
        if self._process is not None:
            self._process.wait()
            with self._guard:
                self._process = None
        if self._link is not None:
            self._link.close()
            self._link = None
        if self._shared is not None:
            os.close(self._shared)
            self._shared = None


def _how(status: int) -> str:
    if status >= 0:
        return f"exit code {status}"
    try:
        return f"signal {signal.Signals(-status).name}"
    except ValueError:
        return f"signal {-status}"
