"""Videos shared out among worker processes; one that dies costs the video it had and is replaced.

With one job everything happens in this process. Workers ignore Ctrl-C, which reaches the whole group: their
parent tells them to stop, and they take back what they have half written before they do.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from app.errors import UsageError, sentence
from app.extract.inputs import Input
from app.extract.plan import ExtractionCrashed, ExtractionOutcome, ExtractionPlan, Failure
from app.processes import die_with_parent
from extractors.errors import ReelwordError
from extractors.extractor import UnknownExtractor
from extractors.pretrained.errors import WeightsError

STOP_SECONDS = 10.0  #: for a worker that is told to stop; native code cannot be interrupted


class ExtractorsMissing(ReelwordError):
    """An extractor cannot be loaded; the message says what to do."""

    code = "extractors_missing"
    hint = "python -m app extract --list shows what each extractor needs."


def describe_all(plan: ExtractionPlan, videos: Sequence[Input], jobs: int) -> Iterator[ExtractionOutcome]:
    """What becomes of each video, in the order in which they are done.

    Raises UsageError, or ExtractorsMissing where weights or a package are absent.
    """
    if jobs == 1:
        yield from _here(plan, videos)
    else:
        yield from _shared_out(plan, videos, min(jobs, len(videos)))


def _here(plan: ExtractionPlan, videos: Sequence[Input]) -> Iterator[ExtractionOutcome]:
    from app.extract.extraction import VideoExtraction

    with _loaded(lambda: VideoExtraction(plan)) as work:
        yield from work.describe(videos)


def _loaded(make: Callable[[], Any]) -> Any:
    """What ``make`` makes, whatever is wrong with the extractors told in a sentence."""
    try:
        return make()
    except (UnknownExtractor, ValueError) as error:
        raise UsageError(sentence(str(error))) from error
    except WeightsError as error:
        raise ExtractorsMissing(str(error)) from error
    except ImportError as error:
        raise ExtractorsMissing(sentence(f"a package is not installed: {error}")) from error


@dataclass(eq=False)
class _Worker:
    process: SpawnProcess
    link: Connection
    video: Input | None = None
    is_ready: bool = False

    @classmethod
    def start(cls, plan: ExtractionPlan) -> _Worker:
        link, far_end = Pipe()
        context = multiprocessing.get_context("spawn")
        process = context.Process(target=_serve, args=(plan, far_end, os.getpid()))
        process.start()
        far_end.close()
        return cls(process, link)

    def take(self, waiting: deque[Input]) -> None:
        self.video = waiting.popleft() if waiting else None
        if self.video is not None:
            self.link.send(self.video)

    def stop(self) -> None:
        self.process.terminate()
        self.process.join(STOP_SECONDS)
        self.process.kill()
        self.process.join()
        self.link.close()


def _shared_out(plan: ExtractionPlan, videos: Sequence[Input], jobs: int) -> Iterator[ExtractionOutcome]:
    waiting = deque(videos)
    workers = [_Worker.start(plan) for _ in range(jobs)]
    try:
        left = len(videos)
        while left:
            ready = {id(link) for link in wait([worker.link for worker in workers])}
            for worker in [each for each in workers if id(each.link) in ready]:
                outcome = _answer(worker)
                if worker.process.exitcode is not None or not worker.is_ready:
                    workers.remove(worker)
                    worker.stop()
                    workers += [_Worker.start(plan)] if waiting else []
                else:
                    worker.take(waiting)
                if outcome is not None:
                    left -= 1
                    yield outcome
    finally:
        for worker in workers:
            worker.stop()


def _answer(worker: _Worker) -> ExtractionOutcome | None:
    """What a worker says: that it is ready, what became of its video, or, by its end, that it died."""
    try:
        kind, content = worker.link.recv()
    except (EOFError, OSError):
        worker.process.join(STOP_SECONDS)
        how = f"The process that described it ended (exit code {worker.process.exitcode})."
        if worker.video is None:
            raise ExtractorsMissing(how) from None
        worker.is_ready = False
        return ExtractionOutcome(worker.video.file, error=Failure.of(ExtractionCrashed(how)))
    if kind == "usage":
        raise UsageError(content)
    if kind == "missing":
        raise ExtractorsMissing(content)
    worker.is_ready = True
    return content if kind == "outcome" else None


def _serve(plan: ExtractionPlan, link: Connection, parent: int) -> None:
    """A worker's life: load, say so, then one video after the other until it is told to stop."""
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    from app.extract.extraction import VideoExtraction

    try:
        work = _loaded(lambda: VideoExtraction(plan))
    except UsageError as error:
        link.send(("usage", str(error)))
    except ExtractorsMissing as error:
        link.send(("missing", str(error)))
    else:
        link.send(("ready", None))
        with work:
            while True:
                (outcome,) = work.describe([link.recv()])
                link.send(("outcome", outcome))
