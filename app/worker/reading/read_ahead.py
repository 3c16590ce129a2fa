"""Fetches and reads videos ahead of the engine: a thread for each decoder, and one for each fetch.

A decoder's child ends with the thread that started it, so that each decoder has a lasting one. A slow address
holds up nothing but its own job. What is wrong with a file is told at once; a decoder that dies costs its own
job an attempt and no other.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from app.documents.job import Answer
from app.errors import EngineCrashed, EngineFault, JobFailure, QueueUnavailable, UploadMissing, WorkerFault
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineInfo, media_answer
from app.worker.attempt import Attempt, Clip, Estimated, Film
from app.worker.engine.process import EngineDied, EngineRaised
from app.worker.engine.shared_frames import share_footage
from app.worker.feature_reuse import FeatureReuse
from app.worker.job_ends import JobEnds, frame_jpeg
from app.worker.jobs_in_hand import JobsInHand, Place
from app.worker.reading.estimates import CostEstimator
from app.worker.reading.url_fetches import UrlFetches
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.media.errors import DecoderError, DecoderFault, MediaError, TooLong
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.shots.segment import LONG_FILM

#: Longest clip that is captioned as a whole where nothing is said of segments: below ``LONG_FILM``.
CLIP_SECONDS = math.nextafter(LONG_FILM, 0.0)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class ReadAhead:
    """Moves attempts from ``fetch`` and ``read`` to where they are captioned."""

    hand: JobsInHand  #: where attempts wait
    readers: "Sequence[VideoReader]"  #: each gets a thread
    fetches: UrlFetches  #: of videos that have an address
    ends: JobEnds  #: of jobs whose video cannot be had

    def __post_init__(self) -> None:
        self._started = threading.Semaphore(0)
        self._threads = [
            threading.Thread(target=self._read_all, args=(reader,), name=f"reader {number}", daemon=True)
            for number, reader in enumerate(self.readers)
        ]

    def start(self) -> None:
        """Starts the threads and, side by side, their decoders."""
        for thread in self._threads:
            thread.start()

    def wait_until_started(self) -> None:
        """Waits until each decoder has its child, or could not have one."""
        for _ in self.readers:
            self._started.acquire()

    def begin(self, attempt: Attempt) -> None:
        """Has a new attempt fetched, where it has an address, and read."""
        if attempt.claim.job.submission.source_url is None:
            self.hand.put(attempt, "read")
            return
        self.hand.put(attempt, "fetch")
        fetching = threading.Thread(target=self._fetch_next, name="fetch", daemon=True)
        self._threads.append(fetching)
        fetching.start()

    def join(self) -> None:
        """Waits for all threads; the hand has been closed."""
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()

    def _read_all(self, reader: "VideoReader") -> None:
        try:
            reader.decoder.start()
        except MediaError as error:  # the next job tries once more
            log.error("no decoder could be started", error=str(error))
        self._started.release()
        while (attempt := self.hand.take("read")) is not None:
            move_on(attempt, reader.read, self.hand)
        reader.decoder.close()

    def _fetch_next(self) -> None:
        if (attempt := self.hand.take("fetch")) is not None:
            move_on(attempt, self._fetch, self.hand)
        self._threads = [each for each in self._threads if each is not threading.current_thread()]

    def _fetch(self, attempt: Attempt) -> Place | None:
        """Fetches a video, in as many attempts as the job has; None where the job has ended instead."""
        while not self.ends.settle_if_stopped(attempt):
            error = self.fetches.fetch(attempt)
            if self.ends.settle_if_stopped(attempt):
                return None
            if error is None:
                return "read"
            if isinstance(error, JobFailure):
                self.ends.fail(attempt, error)
                return None
            log.error("the job's video could not be fetched", job=attempt.claim.job.id, exc_info=error)
            if not self.ends.again(
                attempt, WorkerFault("The worker met an error while it fetched the video.")
            ):
                return None
        return None


@dataclass(eq=False)
class VideoReader:
    """Reads with one decoder, in one thread."""

    decoder: Decoder  #: its own
    blobs: Blobs  #: where uploads lie
    watch: Watchdog  #: ends what is stopped
    ends: JobEnds
    reuse: FeatureReuse  #: finds kept features
    hand: JobsInHand  #: bounds the bytes of frames
    info: Callable[[], EngineInfo]  #: returns what the engine can do that captions
    limits: Limits  #: of decoding

    def read(self, attempt: Attempt) -> Place | None:
        """Reads what the caption is written of; returns where the job goes next, None where it has ended."""
        if attempt.claim.job.submission.validate_only:
            while read_until_it_works(attempt, self._read_estimate, self.ends):
                if self.ends.finish(attempt):
                    break
            return None
        if not read_until_it_works(attempt, self._read_for_engine, self.ends):
            return None
        if attempt.film is None:
            return "caption"
        self.hand.forget_frames(attempt)
        return "film"

    def _read_for_engine(self, attempt: Attempt) -> None:
        """Finds the video's features, or reads frames into memory that the engine maps and makes the pictures
        that a result shows; a film that is to be cut is read later.
        """
        engine = self.info()
        options = engine.resolve(attempt.claim.job.options)
        request = engine.request_for(options.choice)
        attempt.set_stage("decode")
        if options.segments not in (None, "none"):
            attempt.contents = Film(options)
            return
        whole = options.model_copy(update={"segments": "none"})
        key = self.reuse.key_of(attempt.claim.job, options, engine)
        features = None if key is None else self.reuse.find(attempt.claim.job, options, key)
        if features is not None:
            attempt.contents = Clip(whole, features.facts, features.streams, features.frames, key)
            return
        clip = self._decode(attempt, options, request)
        if clip is None:
            attempt.contents = Film(options.model_copy(update={"segments": "shots"}))
            return
        decoded, facts = clip
        stills = tuple(frame_jpeg(pixels) for pixels in decoded.footage.shown_frames.pixels)
        attempt.contents = Clip(whole, facts, share_footage(decoded.footage), stills, key)

    def _decode(
        self, attempt: Attempt, options: CaptionOptions, request: DecodeRequest
    ) -> tuple[Decoded, Answer] | None:
        """Decodes a clip, and returns what is known of it, too; None for a film that is to be cut."""
        limits = attempt.limits_within(self.limits)
        longest = limits.max_duration
        if options.segments != "none":
            longest = min(CLIP_SECONDS, longest)
        self.hand.forget_frames(attempt)
        began = time.monotonic()
        try:
            with self._opened(attempt) as path:
                decoded = self.decoder.decode(
                    path, request, replace(limits, max_duration=longest), partial(self.hand.admit, attempt)
                )
        except TooLong:
            if longest == limits.max_duration:
                raise
            return None
        return decoded, media_answer(decoded, time.monotonic() - began, options)

    @contextmanager
    def _opened(self, attempt: Attempt) -> Iterator[Path]:
        """Has the job's file on a disk, and its decoder watched."""
        with (
            self.blobs.local(attempt.claim.job.upload) as path,
            self.watch.guard([attempt], self.decoder.kill),
        ):
            yield path

    def _read_estimate(self, attempt: Attempt) -> None:
        """Reads what a caption would be written of, and estimates what that costs."""
        engine = self.info()
        estimator = CostEstimator(self.decoder, engine, attempt.limits_within(self.limits))
        began = time.monotonic()
        options = engine.resolve(attempt.claim.job.options)
        request = engine.request_for(options.choice)
        attempt.set_stage("decode")
        is_whole = options.segments in (None, "none")
        clip = self._decode(attempt, options, request) if is_whole else None
        options = options.model_copy(update={"segments": "none" if clip else options.segments or "shots"})
        estimator.check(options)
        if clip is not None:
            facts = estimator.clip(options, clip[0], time.monotonic() - began)
        else:
            with self._opened(attempt) as path:
                facts = estimator.film(options, path)
        attempt.contents = Estimated(options, facts)


def read_until_it_works(attempt: Attempt, read: Callable[[Attempt], None], ends: JobEnds) -> bool:
    """Reads a job's video, in all its attempts; False where it has ended. Raises QueueUnavailable.

    Args:
        attempt: gets what was read.
        read: reads it, and raises what went wrong.
        ends: of the job, where there is no attempt left or none would help.
    """
    while not ends.settle_if_stopped(attempt):
        try:
            read(attempt)
            return True
        except DecoderFault as fault:
            log.error("the decoder met an error", job=attempt.claim.job.id, error=str(fault))
            ends.fail(attempt, WorkerFault("The worker met an error while it read the file."))
            return False
        except DecoderError as death:
            if not ends.again(attempt, death):
                return False
        except (MediaError, JobFailure) as error:
            ends.fail(attempt, error)
            return False
        except BlobMissingError:
            ends.fail(attempt, UploadMissing("The job's file is not in the blob store."))
            return False
        except QueueUnavailable:
            raise
        except (EngineDied, EngineRaised) as trouble:
            if not ends.again(attempt, engine_failure(trouble)):
                return False
        except Exception:
            log.exception("the job's file could not be read", job=attempt.claim.job.id)
            if not ends.again(attempt, WorkerFault("The worker met an error while it read the file.")):
                return False
    return False


def engine_failure(trouble: EngineDied | EngineRaised) -> JobFailure:
    """Makes the error that clients see; what an exception's text has on this machine is in the log."""
    if isinstance(trouble, EngineDied):
        return EngineCrashed(f"The job killed the engine ({trouble}).")
    log.error("the engine met an error", error=str(trouble))
    return EngineFault("The engine met an error while it looked at the video.")


def move_on(attempt: Attempt, work: Callable[[Attempt], Place | None], hand: JobsInHand) -> None:
    """Works on an attempt and puts it where it goes next, whatever happens.

    Args:
        attempt: that the calling thread has taken.
        work: does what is to be done there, and says where it goes next; None where it has ended.
        hand: is told of an error that is not the job's, for the worker's main thread to deal with.
    """
    try:
        place = work(attempt)
    except Exception as error:
        attempt.stopped = attempt.stopped or "lost"  # it runs again once its lease has lapsed
        hand.drop(attempt)
        hand.fail(error)
        return
    if place is None:
        hand.drop(attempt)
    else:
        hand.put(attempt, place)
