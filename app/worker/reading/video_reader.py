"""Reads the videos of attempts, with one decoder, and decides what a failure there costs a job.

What is wrong with the file is told at once. A decoder that dies costs its own job an attempt and no other.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import structlog

from app.errors import EngineCrashed, EngineFault, JobFailure, QueueUnavailable, UploadMissing, WorkerFault
from app.jobs.blobs import BlobMissingError, Blobs
from app.pipeline.engine_protocol import EngineInfo, media_answer
from app.worker.attempt import Attempt
from app.worker.engine.process import EngineDied, EngineRaised
from app.worker.feature_reuse import FeatureReuse
from app.worker.job_ends import JobEnds, seen_frames
from app.worker.jobs_in_hand import JobsInHand, Place
from app.worker.reading.estimates import CostEstimator
from app.worker.reading.film_segments import limits_of
from app.worker.watchdog import Watchdog
from extractors.decoder.decoder import Decoder
from extractors.media.errors import DecoderError, DecoderFault, MediaError, TooLong
from extractors.media.request import DecodeRequest, Limits
from extractors.shots.segment import LONG_FILM

#: Longest clip that is captioned as a whole where nothing is said of segments: below ``LONG_FILM``.
CLIP_SECONDS = math.nextafter(LONG_FILM, 0.0)
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class VideoReader:
    """Reads with one decoder, in one thread.

    decoder: its own. blobs: where uploads lie. watch: ends what is stopped. ends: of jobs. reuse: finds kept
    features. hand: bounds the bytes of frames. info: tells of the engine that captions. limits: of decoding.
    """

    decoder: Decoder
    blobs: Blobs
    watch: Watchdog
    ends: JobEnds
    reuse: FeatureReuse
    hand: JobsInHand
    info: Callable[[], EngineInfo]
    limits: Limits

    def read(self, run: Attempt) -> Place | None:
        """Reads what the job's caption is written of, and says where the job goes on.

        None where it has ended, as one that asks for no caption has.
        """
        if run.claim.job.submission.validate_only:
            self._validate(run)
            return None
        if not read_until_it_works(run, self._read_for_engine, self.ends):
            return None
        if run.film is not None:
            self.hand.forget_frames(run)
            return "film"
        return "caption"

    def _read_for_engine(self, run: Attempt) -> None:
        """Reads frames into memory that the engine maps, and makes the pictures that a result shows."""
        self._read_frames(run)
        if run.decoded is not None:
            seen_frames(run)
            run.share_frames()

    def _read_frames(self, run: Attempt) -> None:
        engine = self.info()
        run.options = engine.resolve(run.claim.job.options)
        wanted = run.options.segments
        request = engine.request_for(run.options.choice)
        run.set_stage("decode")
        if wanted not in (None, "none"):
            run.film = 0.0
            return
        if self.reuse.find(run, engine):
            run.options = run.options.model_copy(update={"segments": "none"})
            return
        whole = limits_of(run.claim.job, self.limits)
        longest = whole.max_duration if wanted == "none" else min(CLIP_SECONDS, whole.max_duration)
        try:
            self._decode(run, request, replace(whole, max_duration=longest))
        except TooLong:
            if longest == whole.max_duration:
                raise
            run.film, run.options = 0.0, run.options.model_copy(update={"segments": "shots"})
            return
        run.options = run.options.model_copy(update={"segments": "none"})

    def _decode(self, run: Attempt, request: DecodeRequest, limits: Limits) -> None:
        self.hand.forget_frames(run)
        began = time.monotonic()
        with self._opened(run) as path:
            run.decoded = self.decoder.decode(path, request, limits, partial(self.hand.admit, run))
        run.answer = media_answer(run.decoded, time.monotonic() - began)

    @contextmanager
    def _opened(self, run: Attempt) -> Iterator[Path]:
        """Has the job's file on a disk, and its decoder watched."""
        with self.blobs.local(run.claim.job.upload) as path, self.watch.guard([run], self.decoder.kill):
            yield path

    def _validate(self, run: Attempt) -> None:
        """Ends a job that asks for no caption with what its video is and what one would cost."""
        ends = self.ends
        while read_until_it_works(run, self._read_estimate, ends) and not ends.settle_if_stopped(run):
            try:
                ends.end_well(run, run.record())
                return
            except QueueUnavailable:
                raise
            except Exception:
                log.exception("the job's estimate could not be kept", job=run.claim.job.id)
                cause = WorkerFault("The worker met an error while it kept the result.")
                if not ends.again(run, cause):
                    return

    def _read_estimate(self, run: Attempt) -> None:
        """Reads what a caption would be written of, and estimates what that costs."""
        estimator = CostEstimator(self.decoder, self.info(), limits_of(run.claim.job, self.limits))
        began = time.monotonic()
        self._read_frames(run)
        assert run.options is not None
        estimator.check(run.options)
        if run.decoded is not None:
            run.answer = estimator.clip(run.options, run.decoded, time.monotonic() - began)
            return
        with self._opened(run) as path:
            run.answer = estimator.film(run.options, path)


def read_until_it_works(run: Attempt, read: Callable[[Attempt], None], ends: JobEnds) -> bool:
    """Reads a job's video, in as many attempts as the job has.

    Args:
        run: gets what was read.
        read: reads it, and raises what went wrong.
        ends: of the job, where there is no attempt left or none would help.

    Returns:
        False where the job has ended instead.

    Raises:
        QueueUnavailable: Redis stays away.
    """
    while not ends.settle_if_stopped(run):
        try:
            read(run)
            return True
        except DecoderFault as fault:
            log.error("the decoder met an error", job=run.claim.job.id, error=str(fault))
            ends.fail(run, WorkerFault("The worker met an error while it read the file."))
            return False
        except DecoderError as death:
            if not ends.again(run, death):
                return False
        except (MediaError, JobFailure) as error:
            ends.fail(run, error)
            return False
        except BlobMissingError:
            ends.fail(run, UploadMissing("The job's file is not in the blob store."))
            return False
        except QueueUnavailable:
            raise
        except (EngineDied, EngineRaised) as trouble:
            if not ends.again(run, engine_failure(trouble)):
                return False
        except Exception:
            log.exception("the job's file could not be read", job=run.claim.job.id)
            if not ends.again(run, WorkerFault("The worker met an error while it read the file.")):
                return False
    return False


def engine_failure(trouble: EngineDied | EngineRaised) -> JobFailure:
    """Says it for visitors; the log has what an exception's text tells of this machine."""
    if isinstance(trouble, EngineDied):
        return EngineCrashed(f"The job killed the engine ({trouble}).")
    log.error("the engine met an error", error=str(trouble))
    return EngineFault("The engine met an error while it looked at the video.")
