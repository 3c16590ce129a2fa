"""Fetches and reads videos ahead of the engine: a thread for each decoder, and one for each fetch.

A decoder's child ends with the thread that started it, so that each decoder has a lasting one. A slow address
holds up nothing but its own job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import structlog

from app.errors import JobFailure, WorkerFault
from app.worker.attempt import Attempt
from app.worker.job_ends import JobEnds
from app.worker.jobs_in_hand import JobsInHand, Place
from app.worker.reading.url_fetches import UrlFetches
from app.worker.reading.video_reader import VideoReader
from extractors.media.errors import MediaError

log = structlog.get_logger(__name__)


class ReadAhead:
    """Moves attempts from ``fetch`` and ``read`` to where they are captioned.

    Args:
        hand: where attempts wait.
        readers: each gets a thread.
        fetches: of videos that have an address.
        ends: of jobs whose video cannot be had.
    """

    def __init__(
        self, hand: JobsInHand, readers: Sequence[VideoReader], fetches: UrlFetches, ends: JobEnds
    ) -> None:
        self._hand, self._readers, self._fetches, self._ends = hand, readers, fetches, ends
        self._started = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._read_all, args=(reader,), name=f"reader {number}", daemon=True)
            for number, reader in enumerate(readers)
        ]

    def start(self) -> None:
        """Starts the threads and, side by side, their decoders."""
        for thread in self._threads:
            thread.start()

    def wait_until_started(self) -> None:
        """Waits until each decoder has its child, or could not have one."""
        for _ in self._readers:
            self._started.acquire()

    def begin(self, run: Attempt) -> None:
        """Has a new attempt fetched, where it has an address, and read."""
        if run.claim.job.submission.source_url is None:
            self._hand.put(run, "read")
            return
        self._hand.put(run, "fetch")
        fetching = threading.Thread(target=self._fetch_next, name="fetch", daemon=True)
        self._threads.append(fetching)
        fetching.start()

    def join(self) -> None:
        """Waits for all threads; the hand has been closed."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _read_all(self, reader: VideoReader) -> None:
        try:
            reader.decoder.start()
        except MediaError as error:  # the next job tries once more
            log.error("no decoder could be started", error=str(error))
        self._started.release()
        while (run := self._hand.take("read")) is not None:
            move_on(run, reader.read, self._hand)
        reader.decoder.close()

    def _fetch_next(self) -> None:
        if (run := self._hand.take("fetch")) is not None:
            move_on(run, self._fetch, self._hand)
        self._threads = [each for each in self._threads if each is not threading.current_thread()]

    def _fetch(self, run: Attempt) -> Place | None:
        """Fetches a video, in as many attempts as the job has; None where the job has ended instead."""
        while not self._ends.settle_if_stopped(run):
            failed = self._fetches.fetch([run])
            if self._ends.settle_if_stopped(run):
                return None
            if run not in failed:
                return "read"
            if not self._is_fetched_again(run, failed[run]):
                return None
        return None

    def _is_fetched_again(self, run: Attempt, error: Exception) -> bool:
        """Whether the next attempt has begun after this error; where it has not, the job has ended."""
        if isinstance(error, JobFailure):
            self._ends.fail(run, error)
            return False
        log.error("the job's video could not be fetched", job=run.claim.job.id, exc_info=error)
        return self._ends.again(run, WorkerFault("The worker met an error while it fetched the video."))


def move_on(run: Attempt, work: Callable[[Attempt], Place | None], hand: JobsInHand) -> None:
    """Works on an attempt and puts it where it goes on, whatever happens.

    Args:
        run: that the calling thread has taken.
        work: does what is to be done there, and says where it goes on; None where it has ended.
        hand: is told of an error that is not the job's, for the worker's main thread to deal with.
    """
    try:
        place = work(run)
    except Exception as error:
        run.stopped = run.stopped or "lost"  # it runs again once its lease has lapsed
        hand.drop(run)
        hand.fail(error)
        return
    if place is None:
        hand.drop(run)
    else:
        hand.put(run, place)
