"""Starts, asks and ends a worker's engine, the one child that holds models.

The child is started ahead, loads its models once and answers lists of videos. Frames travel in memory that
both map, everything else through a pipe. Native code in the child can crash, hang or hold its interpreter's
lock: the parent notices a death at once and can end it at any moment.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from multiprocessing.reduction import send_handle
from typing import TYPE_CHECKING, Any, Literal, Self

import structlog

from app.errors import EngineStartFailed, JobFailure
from app.settings import Settings
from extractors.child_process import LinkedProcess

if TYPE_CHECKING:  # what takes long to import is imported while the engine loads
    from app.jobs.options import CaptionOptions
    from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors
    from extractors.features import Frames

DEATH_SECONDS = 5.0  #: for a child whose end of the pipe is closed to be gone
Request = Literal["caption", "embed", "measure"]  #: what a child may be asked (app/worker/engine/child.py)
log = structlog.get_logger(__name__)


class EngineDied(Exception):
    """Is raised where the engine ended before it had answered; the next ``start`` makes a new one."""


class EngineRaised(Exception):
    """Is raised where the engine met an error that it did not expect, and still runs."""


class EngineProcess:
    """Holds one engine at a time. One thread starts and uses it; any thread may ``kill`` it.

    The child also ends when the *thread* that started it ends (that is what Linux watches).
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process: LinkedProcess | None = None
        self._is_loading = False  # it was begun, and nothing has waited for it
        self._guard = threading.RLock()  # a signal handler may kill while its thread starts one
        self.info: EngineInfo | None = None
        self._measured: dict[str, float | None] = {}  # seconds by captioner; None where it died of that
        self.starts = 0
        self.started_at: float | None = None  # seconds since 1970

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def is_alive(self) -> bool:
        return self._process is not None and self._process.is_alive

    @property
    def is_ready(self) -> bool:
        """Returns whether its models are loaded and it runs."""
        return self.info is not None and self.is_alive

    def start(self) -> EngineInfo:
        """Starts a warm engine where there is none. Raises EngineStartFailed."""
        if self.info is not None and self.is_alive:
            return self.info
        began = time.monotonic()
        if not self._is_loading:
            self.begin()
        self._is_loading = False
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

    def begin(self) -> None:
        """Starts an engine, which loads its models meanwhile; ``start`` waits for it."""
        self.close()
        log.info("engine starting")
        self._spawn()
        self._is_loading = True
        self.starts += 1
        self.started_at = time.time()

    def _spawn(self) -> None:
        # Before numpy is imported there: pools of threads starve each other on a few cores.
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(self._settings.threads))
        process = LinkedProcess(
            "app.worker.engine.child", environment={**os.environ, **threads}, output=sys.stderr
        )
        with self._guard:
            self._process = process
        with suppress(EngineDied):  # which who waits for it finds out
            _send(process, self._settings)

    def _await_warm(self) -> EngineInfo:
        process, seconds = self._process, self._settings.engine_start_seconds
        if process is None:
            raise EngineDied("it was ended while it loaded")
        if not process.link.poll(seconds):
            raise EngineStartFailed(f"The engine was not warm within {seconds} s.")
        kind, content = _receive(process)
        if kind == "raised":
            raise EngineStartFailed(f"The engine does not start: {content}")
        info: EngineInfo = content
        for name, spent in self._measured.items():  # by an engine before this one
            info = info.measured(name, spent)
        return info

    def run(
        self,
        videos: Sequence[Frames | bytes],
        options: Sequence[CaptionOptions],
        report: Report,
        keep: Collection[int] = (),
    ) -> list[EngineAnswer | JobFailure]:
        """Captions videos together; returns for each its answer, or why it has none. It has been started.

        Args:
            videos: the frames of each, or its packed streams.
            report: is called with the progress of all.
            keep: places of the videos whose answers are to have their streams, packed.

        Raises:
            EngineDied: the child ended meanwhile, by itself or killed.
            EngineRaised: it met an error that it did not expect, and still runs.
        """
        answers: list[EngineAnswer | JobFailure] = self._ask("caption", videos, list(options), report, keep)
        return answers

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        """Embeds pictures (each a video of one frame) and sentences; None where the weights have no
        embedding.

        The engine has been started. Raises EngineDied and EngineRaised as ``run``.
        """
        vectors: SemanticVectors | None = self._ask("embed", pictures, list(sentences))
        return vectors

    def measure_next(self) -> bool:
        """Measures a captioner that has not been, once however that ends; False where there is none.

        The engine has been started; where it dies of that, the next ``start`` makes a new one.
        """
        if self.info is None or not self.info.unmeasured:
            return False
        name = self.info.unmeasured[0]
        self._measured[name] = None
        try:
            self._measured[name] = float(self._ask("measure", [], [name]))
        except (EngineDied, EngineRaised) as trouble:
            log.warning("captioner could not be measured", captioner=name, why=str(trouble))
        self.info = self.info.measured(name, self._measured[name])
        return True

    def _ask(
        self,
        request: Request,
        videos: Sequence[Frames | bytes],
        arguments: Sequence[Any],
        report: Report | None = None,
        keep: Collection[int] = (),
    ) -> Any:
        from app.worker.engine.shared_frames import write_frames

        process = self._process
        assert process is not None
        places, descriptors = write_frames(videos, process.shared)
        _send(process, (request, places, arguments, frozenset(keep), len(descriptors)), descriptors)
        while True:
            kind, content = _receive(process)
            if kind == "progress":
                if report is not None:
                    report(*content)
            elif kind == "raised":
                raise EngineRaised(content)
            else:
                return content

    def interrupt(self) -> None:
        """Has the engine leave what it captions, and stay; a running ``run`` raises EngineRaised.

        What is native code in it is not interrupted: it is left as soon as that returns.
        """
        with self._guard:
            if self._process is not None and self.info is not None:
                self._process.interrupt()

    def kill(self) -> None:
        """Ends the engine at once, whatever it does; a running ``run`` raises EngineDied."""
        with self._guard:
            if self._process is not None:
                self._process.kill()

    def close(self) -> None:
        """Ends the engine, if there is one."""
        self.info, self._is_loading = None, False
        with self._guard:
            process, self._process = self._process, None
        if process is not None:
            process.close()


def _send(process: LinkedProcess, message: object, descriptors: Sequence[int] = ()) -> None:
    try:
        process.link.send(message)
        for descriptor in descriptors:
            send_handle(process.link, descriptor, process.pid)
    except OSError as error:
        raise EngineDied(process.explain_end(DEATH_SECONDS)) from error


def _receive(process: LinkedProcess) -> tuple[str, Any]:
    try:
        message: tuple[str, Any] = process.link.recv()
    except (EOFError, OSError, pickle.UnpicklingError) as error:
        raise EngineDied(process.explain_end(DEATH_SECONDS)) from error
    return message
