"""Loads an engine and answers its worker: ``python -m app.worker.engine.child``, started by
app/worker/engine/process.py and gone with it.

Nothing heavy is imported before the settings are here: they name the engine.
"""

import os
import signal
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.reduction import recv_handle
from typing import Any

from app.errors import EngineStartFailed, JobFailure
from app.jobs.job import Stage
from app.pipeline.engine_protocol import CaptionEngine, EngineAnswer, load_engine
from app.worker.engine.shared_frames import SharedVideo, map_frames
from extractors.child_process import ParentLink, join_parent
from extractors.features import Footage


class Interrupted(Exception):
    """Is raised in the middle of a request that the parent wants no answer to any more."""


class Interruption:
    """Raises Interrupted by SIGUSR1 while that is allowed: never while a message is half sent."""

    def __init__(self) -> None:
        self._is_allowed = False
        signal.signal(signal.SIGUSR1, self._interrupt)

    @contextmanager
    def allow(self, *, allowed: bool = True) -> Iterator[None]:
        """Allows it meanwhile, or forbids it."""
        before, self._is_allowed = self._is_allowed, allowed
        try:
            yield
        finally:
            self._is_allowed = before

    def _interrupt(self, *_: object) -> None:
        if self._is_allowed:
            self._is_allowed = False
            raise Interrupted("the parent wants no answer any more")


def main() -> None:
    """Loads the models, sends what they can do, then answers until the parent is gone."""
    parent, interruption = join_parent(), Interruption()
    link = parent.link
    settings = link.recv()
    try:
        engine = load_engine(settings)
        link.send(("warm", engine.warm_up()))
    except Exception as error:
        traceback.print_exc()
        link.send(("raised", _format_error(error)))
        return
    _answer_requests(engine, parent, interruption)


def _answer_requests(engine: CaptionEngine, parent: ParentLink, interruption: Interruption) -> None:
    """Answers requests from the pipe, one after the other; an unexpected error is an answer too."""
    link = parent.link

    def report(stage: Stage, share: float, text: str = "") -> None:
        with interruption.allow(allowed=False):
            link.send(("progress", (stage, share, text)))

    while True:
        try:
            request, places, arguments, keep, count = link.recv()
            descriptors = [recv_handle(link) for _ in range(count)]
        except (EOFError, OSError):
            return
        try:
            videos = _map_and_close(places, parent.shared, descriptors)
            result: Any
            if request == "measure":
                result = engine.measure(*arguments)
            elif request == "embed":
                result = engine.embed([video for video in videos if not isinstance(video, bytes)], arguments)
            else:
                with interruption.allow():
                    answers = engine.describe_and_caption(videos, arguments, report)
                result = [_packed(answer, place in keep) for place, answer in enumerate(answers)]
            del videos  # or the last batch's frames stay in memory until the next request
        except Exception as error:
            if not isinstance(error, Interrupted):
                traceback.print_exc()
            link.send(("raised", _format_error(error)))
        else:
            link.send(("answer", result))


def _map_and_close(
    places: Sequence[SharedVideo], shared: int, descriptors: Sequence[int]
) -> list[Footage | bytes]:
    """Finds the videos of a request, and closes the descriptors that came with it."""
    try:
        return map_frames(places, shared, descriptors)
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _packed(answer: EngineAnswer | JobFailure, is_kept: bool) -> EngineAnswer | JobFailure:
    """Makes an answer fit for the way to the parent: its streams go along packed, or not at all."""
    if isinstance(answer, JobFailure) or answer.pack_streams is None:
        return answer
    return replace(answer, pack_streams=None, packed_streams=answer.pack_streams() if is_kept else None)


def _format_error(error: Exception) -> str:
    named = str(error) if isinstance(error, EngineStartFailed) else f"{type(error).__name__}: {error}"
    return named[:500]


if __name__ == "__main__":
    main()
