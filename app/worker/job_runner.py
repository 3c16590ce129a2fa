"""Runs the jobs in a worker's hands, stores their results, and decides what the death of a child costs them.

    fetch those with an address → decode each → caption all together → finish each
                        ↓ the engine died
                  each again, alone

A job that shared the batch goes on within the attempt it had; one that was alone starts its next attempt, or
has failed where it had its last.

A film that is to be cut into segments takes minutes or hours: it comes after the clips that were taken with
it, and of several such films all but one are handed back, for workers that are idle.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog

from app.errors import (
    DeadlineExceeded,
    EngineCrashed,
    EngineFault,
    JobFailure,
    QueueUnavailable,
    UploadMissing,
    WorkerFault,
)
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job import Stage
from app.jobs.job_store import Claim, Jobs
from app.pipeline.engine_protocol import EngineAnswer, media_answer
from app.settings import Settings
from app.tracing.spans import Tracing
from app.worker.engine_process import EngineDied, EngineProcess, EngineRaised
from app.worker.estimates import CostEstimator
from app.worker.feature_reuse import FeatureReuse
from app.worker.film_segments import FilmSegments, film_answer, limits_of
from app.worker.job_spans import spans_of
from app.worker.results import delete_blobs, frame_jpeg, remove_blob, store_large_answer, store_result
from app.worker.url_fetches import UrlFetches
from app.worker.watchdog import Attempt, Watchdog
from extractors.decoder.decoder import Decoder
from extractors.errors import ReelwordError
from extractors.media.errors import DecoderError, DecoderFault, MediaError, TooLong
from extractors.media.request import Limits
from extractors.shots.segment import LONG_FILM

#: Longest clip that is captioned as a whole where nothing is said of segments: below ``LONG_FILM``.
CLIP_SECONDS = math.nextafter(LONG_FILM, 0.0)
log = structlog.get_logger(__name__)


class JobRunner:
    """Runs claimed jobs to their end with one decoder and one engine.

    Args:
        jobs: the records.
        blobs: where uploads and results lie.
        decoder: reads the videos.
        engine: captions them.
        watch: keeps the leases meanwhile.
        settings: limits of time and memory.
        tracing: is told of each job's turn.

    Raises:
        QueueUnavailable: Redis stays away; the jobs run again once their leases lapse.
        EngineStartFailed: the engine that died cannot be replaced; they are handed back.
    """

    def __init__(
        self,
        jobs: Jobs,
        blobs: Blobs,
        decoder: Decoder,
        engine: EngineProcess,
        watch: Watchdog,
        settings: Settings,
        tracing: Tracing | None = None,
    ) -> None:
        self._jobs, self._blobs, self._watch = jobs, blobs, watch
        self._decoder, self._engine, self._settings = decoder, engine, settings
        self._tracing = tracing or Tracing()
        self._limits = Limits(seconds=settings.decode_seconds, memory=settings.decode_memory)
        self._reuse = FeatureReuse(settings, blobs)
        self._fetches = UrlFetches(blobs, watch, settings)
        self._films = FilmSegments(blobs, decoder, engine, watch, settings, self._limits)

    def work(self, claims: Sequence[Claim]) -> None:
        """Takes all claims to their end: first together, then, should the batch die, one by one."""
        runs = [Attempt(claim) for claim in claims]
        with self._watch.hold(runs):
            try:
                self._work(runs)
            except Exception:
                self._hand_back(runs)
                raise
            finally:
                self._tell(runs)

    def _tell(self, runs: Sequence[Attempt]) -> None:
        for run in runs if self._tracing.is_on else ():
            self._tracing.record(run.claim.job.submission.traceparent, spans_of(run))

    def _work(self, runs: Sequence[Attempt]) -> None:
        away = [run for run in runs if run.claim.job.submission.source_url is not None]
        films = self._caption_clips([run for run in runs if run not in away])
        films += self._caption_clips(self._fetch(away))  # nobody waits for another's server
        self._hand_back(films[1:])
        for film in films[:1]:
            self._caption_film(film)

    def _fetch(self, runs: Sequence[Attempt]) -> list[Attempt]:
        """Fetches the videos of runs that have an address; returns those whose video is there."""
        there: list[Attempt] = []
        left = [run for run in runs if not self._settle_if_stopped(run)]
        while left:
            failed = self._fetches.fetch(left)
            there += [run for run in left if run not in failed and not self._settle_if_stopped(run)]
            left = [run for run in failed if self._is_fetched_again(run, failed[run])]
        return there

    def _is_fetched_again(self, run: Attempt, error: Exception) -> bool:
        """Whether the next attempt has begun after this error; where it has not, the job has ended."""
        if self._settle_if_stopped(run):
            return False
        if isinstance(error, JobFailure):
            self._fail(run, error)
            return False
        log.error("the job's video could not be fetched", job=run.claim.job.id, exc_info=error)
        return self._again(run, WorkerFault("The worker met an error while it fetched the video."))

    def _caption_clips(self, runs: Sequence[Attempt]) -> list[Attempt]:
        """Captions clips, together where that goes well; returns the runs that turned out to be films."""
        for run in [run for run in runs if run.claim.job.submission.validate_only]:
            self._validate(run)
        asked = [run for run in runs if not run.claim.job.submission.validate_only]
        read = [run for run in asked if self._decode(run, self._read_frames)]
        batches = deque([[run for run in read if run.film is None]])
        while batches:
            batch = [
                run for run in batches.popleft() if not self._settle_if_stopped(run) and self._is_read(run)
            ]
            if batch:
                batches.extend([run] for run in self._caption(batch))
        return [run for run in read if run.film is not None]

    def _is_read(self, run: Attempt) -> bool:
        """Reads once more a job whose kept features were of no use."""
        return run.has_video or self._decode(run, self._read_frames)

    def _caption_film(self, run: Attempt) -> None:
        """Captions a film's segments, then what sums it up; an attempt that fails leaves its segments."""
        while self._decode(run, self._read_film) and not self._settle_if_stopped(run):
            if not self._caption([run]):
                return

    def _decode(self, run: Attempt, read: Callable[[Attempt], None]) -> bool:
        """Reads the job's frames by ``read``; False where the job has ended instead."""
        while not self._settle_if_stopped(run):
            try:
                read(run)
                return True
            except DecoderFault as fault:
                log.error("the decoder met an error", job=run.claim.job.id, error=str(fault))
                self._fail(run, WorkerFault("The worker met an error while it read the file."))
                return False
            except DecoderError as death:
                if not self._again(run, death):
                    return False
            except (MediaError, JobFailure) as error:
                self._fail(run, error)
                return False
            except BlobMissingError:
                self._fail(run, UploadMissing("The job's file is not in the blob store."))
                return False
            except QueueUnavailable:
                raise
            except (EngineDied, EngineRaised) as trouble:
                if not self._again(run, _engine_failure(trouble)):
                    return False
            except Exception:
                log.exception("the job's file could not be read", job=run.claim.job.id)
                if not self._again(run, WorkerFault("The worker met an error while it read the file.")):
                    return False
        return False

    def _read_frames(self, run: Attempt) -> None:
        engine = self._engine.start()
        run.options = engine.resolve(run.claim.job.options)
        wanted = run.options.segments
        request = engine.request_for(run.options.choice)
        run.set_stage("decode")
        if wanted not in (None, "none"):
            run.film = 0.0
            return
        if self._reuse.find(run, engine):
            run.options = run.options.model_copy(update={"segments": "none"})
            return
        whole = limits_of(run.claim.job, self._limits)
        longest = whole.max_duration if wanted == "none" else min(CLIP_SECONDS, whole.max_duration)
        limits = replace(whole, max_duration=longest)
        began = time.monotonic()
        with (
            self._blobs.local(run.claim.job.upload) as path,
            self._watch.guard([run], self._decoder.kill),
        ):
            try:
                run.decoded = self._decoder.decode(path, request, limits)
            except TooLong:
                if longest == whole.max_duration:
                    raise
                run.film, run.options = 0.0, run.options.model_copy(update={"segments": "shots"})
                return
        run.options = run.options.model_copy(update={"segments": "none"})
        run.answer = media_answer(run.decoded, time.monotonic() - began)

    def _validate(self, run: Attempt) -> None:
        """Ends a job that asks for no caption with what its video is and what one would cost."""
        while self._decode(run, self._read_estimate) and not self._settle_if_stopped(run):
            try:
                self._end_well(run, run.record())
                return
            except QueueUnavailable:
                raise
            except Exception:
                log.exception("the job's estimate could not be kept", job=run.claim.job.id)
                if not self._again(run, WorkerFault("The worker met an error while it kept the result.")):
                    return

    def _read_estimate(self, run: Attempt) -> None:
        """Reads what a caption would be written of, and estimates what that costs."""
        estimator = CostEstimator(self._decoder, self._engine.start(), limits_of(run.claim.job, self._limits))
        began = time.monotonic()
        self._read_frames(run)
        assert run.options is not None
        estimator.check(run.options)
        if run.decoded is not None:
            run.answer = estimator.clip(run.options, run.decoded, time.monotonic() - began)
            return
        with (
            self._blobs.local(run.claim.job.upload) as path,
            self._watch.guard([run], self._decoder.kill),
        ):
            run.answer = estimator.film(run.options, path)

    def _read_film(self, run: Attempt) -> None:
        """Captions the film's segments, and reads what sums it up."""
        self._engine.start()
        run.set_stage("decode")
        with self._blobs.local(run.claim.job.upload) as path:
            self._films.caption(run, path)

    def _caption(self, batch: Sequence[Attempt]) -> list[Attempt]:
        """Captions a batch and finishes its jobs; returns those that are to run again, alone."""

        def report(stage: Stage, share: float) -> None:
            for run in batch:
                run.set_stage(stage, share)

        self._engine.start()
        report("extract", 0.0)
        videos = [run.video for run in batch]
        options = [run.options for run in batch if run.options is not None]
        keep = [place for place, run in enumerate(batch) if run.is_kept]
        try:
            with self._watch.guard(batch, self._engine.kill, self._settings.cancel_grace):
                answers = self._engine.run(videos, options, report, keep)
        except EngineDied as death:
            log.warning("engine died", jobs=[run.claim.job.id for run in batch], how=str(death))
            return self._all_again(batch, _engine_failure(death))
        except EngineRaised as fault:
            return self._all_again(batch, _engine_failure(fault))
        return [run for run, answer in zip(batch, answers, strict=True) if not self._finish(run, answer)]

    def _all_again(self, batch: Sequence[Attempt], cause: JobFailure) -> list[Attempt]:
        return [run for run in batch if self._again(run, cause)]

    def _again(self, run: Attempt, cause: ReelwordError) -> bool:
        """Goes on to the next attempt at once; False where the job has ended or is no longer ours."""
        with self._watch.pause():
            if run.stopped:
                self._settle_if_stopped(run)
                return False
            taken = self._jobs.claim_again(run.claim, cause)
            if isinstance(taken, Claim):
                log.warning("job starts again", job=taken.job.id, attempt=taken.job.attempt, why=str(cause))
                run.begin_again(taken)
                self._reuse.distrust(run)
                return True
            self._watch.release(run)
        log.warning("job is not run again", job=taken.job_id, why=taken.reason, cause=str(cause))
        run.error = cause if taken.reason == "exhausted" else None
        if taken.reason in ("canceled", "exhausted"):
            remove_blob(self._blobs, run.claim.job.upload)
        run.is_settled = True
        return False

    def _finish(self, run: Attempt, answer: EngineAnswer | JobFailure) -> bool:
        """Writes the result; False where writing met an error and the job is to run again."""
        if self._settle_if_stopped(run):
            return True
        if isinstance(answer, JobFailure):
            self._fail(run, answer)
            return True
        try:
            self._succeed(run, answer)
        except QueueUnavailable:
            raise
        except Exception:
            log.exception("the job's result could not be kept", job=run.claim.job.id)
            return not self._again(run, WorkerFault("The worker met an error while it kept the result."))
        return True

    def _succeed(self, run: Attempt, answer: EngineAnswer) -> None:
        if run.film is not None:
            answer = film_answer(run, answer)
        frames = seen_frames(run)
        store_result(self._blobs, run.claim.results, frames, answer.attention)
        whole = run.record(run.answer.joined_with(answer.answer))
        self._end_well(run, store_large_answer(self._blobs, run.claim.results, whole))
        self._reuse.keep(run, frames, answer)

    def _end_well(self, run: Attempt, record: Mapping[str, Any]) -> None:
        """Ends the job as succeeded, on the record."""
        job = run.claim.job
        self._watch.release(run)
        is_ours = self._jobs.succeed(run.claim, record)
        run.is_settled = True
        log.info("job succeeded" if is_ours else "job was lost", job=job.id, caption=record.get("caption"))
        if not is_ours:
            remove_blob(self._blobs, run.claim.results)
        elif self._settings.upload_seconds == 0:
            remove_blob(self._blobs, job.upload)

    def _fail(self, run: Attempt, error: ReelwordError) -> None:
        self._watch.release(run)
        run.error = error
        is_ours = self._jobs.fail(run.claim, error, run.record())
        run.is_settled = True
        log.warning(
            "job failed", job=run.claim.job.id, code=error.code, message=str(error), hint=error.operator_hint
        )
        if is_ours:
            remove_blob(self._blobs, run.claim.job.upload)

    def _settle_if_stopped(self, run: Attempt) -> bool:
        """Ends, on the record, a run that the watch has stopped."""
        if run.stopped is None or run.is_settled:
            return run.is_settled
        if run.stopped == "deadline":
            self._fail(run, DeadlineExceeded(self._lateness(run)))
        elif run.stopped == "canceled":
            self._jobs.stop(run.claim)
            delete_blobs(self._blobs, run.claim.job.id)
        elif run.stopped == "handed back":
            self._jobs.hand_back(run.claim)
        run.is_settled = True
        return True

    def _lateness(self, run: Attempt) -> str:
        seconds = self._settings.job_seconds
        if run.film is None:
            return f"The job ran longer than {seconds:g} seconds ({run.stage})."
        return f"No segment of the film was done within {seconds:g} seconds ({run.stage})."

    def _hand_back(self, runs: Sequence[Attempt]) -> None:
        """Leaves no job behind in a worker that cannot go on."""
        for run in runs:
            if not run.is_settled:
                run.stopped = run.stopped or "handed back"
                self._settle_if_stopped(run)


def seen_frames(run: Attempt) -> tuple[bytes, ...]:
    """Makes JPEG files of the frames that the captioner saw, or takes those that are kept."""
    if run.features is not None:
        return run.features.frames
    assert run.decoded is not None
    return tuple(frame_jpeg(pixels) for pixels in run.decoded.frames.pixels)


def _engine_failure(trouble: EngineDied | EngineRaised) -> JobFailure:
    """Says it for visitors; the log has what an exception's text tells of this machine."""
    if isinstance(trouble, EngineDied):
        return EngineCrashed(f"The job killed the engine ({trouble}).")
    log.error("the engine met an error", error=str(trouble))
    return EngineFault("The engine met an error while it looked at the video.")
