"""Shares videos out among worker processes; one that dies costs the video it had and is replaced.

With one job everything happens in this process. Workers ignore Ctrl-C, which reaches the whole group: their
parent tells them to stop, and they take back what they have half written before they do.
"""

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UsageError, sentence
from app.extract.inputs import InputVideo
from app.extract.plan import ExtractionCrashed, ExtractionOutcome, ExtractionPlan, ExtractorsMissing
from extractors.child_process import ROOT, LinkedProcess, join_parent
from extractors.errors import PackageMissing, ReelwordError
from extractors.extractor import UnknownExtractor
from extractors.pretrained.errors import WeightsError

if TYPE_CHECKING:
    from app.extract.extraction import VideoExtraction

STOP_SECONDS = 10.0  #: for a worker that is told to stop; native code cannot be interrupted


def extract_in_processes(
    plan: ExtractionPlan, videos: Sequence[InputVideo], jobs: int
) -> Iterator[ExtractionOutcome]:
    """Extracts features of videos, here or in several processes; yields what became of each once done.

    Args:
        jobs: how many processes; 1 is this one.

    Raises:
        UsageError: the extractors cannot be had as asked.
        ExtractorsMissing: weights or a package are absent.
    """
    if jobs > 1:
        yield from _share_out(plan, videos, min(jobs, len(videos)))
    else:
        with _load(plan) as work:
            yield from work.extract(videos)


def _load(plan: ExtractionPlan) -> "VideoExtraction":
    """Loads the extractors, which imports torch. Raises UsageError, ExtractorsMissing."""
    try:
        from app.extract.extraction import VideoExtraction

        return VideoExtraction(plan)
    except (UnknownExtractor, ValueError) as error:
        raise UsageError(sentence(str(error))) from error
    except WeightsError as error:
        raise ExtractorsMissing(str(error)) from error
    except PackageMissing as error:
        raise ExtractorsMissing(error.advice) from error
    except ImportError as error:
        raise ExtractorsMissing(sentence(f"a package is not installed: {error}")) from error


@dataclass(eq=False)
class _Worker:
    process: LinkedProcess
    video: InputVideo | None = None
    is_ready: bool = False

    @classmethod
    def start(cls, plan: ExtractionPlan) -> "_Worker":
        # videos may be named from where the command was given; a folder called app there is not this one
        searched = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "PYTHONPATH": searched, "PYTHONSAFEPATH": "1"}
        process = LinkedProcess("app.extract.pool", environment=environment, folder=Path.cwd())
        with suppress(OSError):  # one that is dead by now is noticed where its answer is awaited
            process.link.send(plan)
        return cls(process)

    def take(self, waiting: deque[InputVideo]) -> None:
        self.video = waiting.popleft() if waiting else None
        if self.video is not None:
            with suppress(OSError):
                self.process.link.send(self.video)

    def stop(self) -> None:
        self.process.stop(STOP_SECONDS)
        self.process.close()


def _share_out(plan: ExtractionPlan, videos: Sequence[InputVideo], jobs: int) -> Iterator[ExtractionOutcome]:
    waiting = deque(videos)
    workers = [_Worker.start(plan) for _ in range(jobs)]
    try:
        left = len(videos)
        while left:
            ready = {id(link) for link in wait([worker.process.link for worker in workers])}
            for worker in [each for each in workers if id(each.process.link) in ready]:
                outcome = _receive(worker)
                if not worker.is_ready or not worker.process.is_alive:
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


def _receive(worker: _Worker) -> ExtractionOutcome | None:
    """Reads a worker's message: None once it is ready, its video's outcome, or, by its end, that it died.

    Raises the UsageError or ExtractorsMissing that keeps a worker from becoming ready.
    """
    try:
        message: ExtractionOutcome | ReelwordError | None = worker.process.link.recv()
    except (EOFError, OSError):
        how = f"The process that extracted its features ended ({worker.process.explain_end(STOP_SECONDS)})."
        if worker.video is None:
            raise ExtractorsMissing(how) from None
        worker.is_ready = False
        return ExtractionOutcome.failed(worker.video.place, ExtractionCrashed(how))
    if isinstance(message, ReelwordError):
        raise message
    worker.is_ready = True
    return message


def serve() -> None:
    """Runs a worker: loads the extractors, says so, then extracts features until it is told to stop."""
    link = join_parent().link
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        work = _load(link.recv())
    except (UsageError, ExtractorsMissing) as error:
        link.send(error)
        return
    link.send(None)
    with work:
        while True:
            (outcome,) = work.extract([link.recv()])
            link.send(outcome)


if __name__ == "__main__":
    serve()
