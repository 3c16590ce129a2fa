"""Ends attempts on the record and in the job's trace, or starts the next one of a job that has another.

A job that shared the batch which died goes on within the attempt it had; one that was alone starts its next
attempt, or has failed where it had its last.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from app.errors import DeadlineExceeded, JobFailure, QueueUnavailable, WorkerFault
from app.jobs.blobs import Blobs
from app.jobs.job_store import Claim, Jobs
from app.pipeline.engine_protocol import EngineAnswer
from app.settings import Settings
from app.tracing.spans import Attribute, FinishedSpan
from app.worker.attempt import Attempt
from app.worker.feature_reuse import FeatureReuse
from app.worker.reading.film_segments import film_answer
from app.worker.results import delete_blobs, frame_jpeg, remove_blob, store_large_answer, store_result
from app.worker.watchdog import Watchdog
from extractors.errors import ReelwordError

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JobEnds:
    """Ends the attempts of one worker; an attempt is ended by the thread that has it.

    jobs: the records. blobs: where uploads and results lie. watch: keeps the leases until then. settings: of
    times. reuse: keeps the features of what has been captioned.
    """

    jobs: Jobs
    blobs: Blobs
    watch: Watchdog
    settings: Settings
    reuse: FeatureReuse

    def again(self, run: Attempt, cause: ReelwordError, *, was_shared: bool = False) -> bool:
        """Goes on to the next attempt at once.

        Args:
            run: whose child has died, or met an error.
            cause: what is recorded where no attempt is left.
            was_shared: whether that may be another job's fault; then it has the same attempt once more.

        Returns:
            False where the job has ended or is no longer ours.
        """
        with self.watch.pause():
            if run.stopped:
                self.settle_if_stopped(run)
                return False
            taken = self.jobs.claim_again(run.claim, cause, was_shared=was_shared)
            if isinstance(taken, Claim):
                log.warning("job starts again", job=taken.job.id, attempt=taken.job.attempt, why=str(cause))
                run.begin_again(taken)
                self.reuse.distrust(run)
                return True
            self.watch.release(run)
        log.warning("job is not run again", job=taken.job_id, why=taken.reason, cause=str(cause))
        run.error = cause if taken.reason == "exhausted" else None
        if taken.reason in ("canceled", "exhausted"):
            remove_blob(self.blobs, run.claim.job.upload)
        run.is_settled = True
        return False

    def finish(self, run: Attempt, answer: EngineAnswer | JobFailure) -> bool:
        """Writes the result; False where writing met an error and the job is to run again."""
        if self.settle_if_stopped(run):
            return True
        if isinstance(answer, JobFailure):
            self.fail(run, answer)
            return True
        try:
            self._succeed(run, answer)
        except QueueUnavailable:
            raise
        except Exception:
            log.exception("the job's result could not be kept", job=run.claim.job.id)
            return not self.again(run, WorkerFault("The worker met an error while it kept the result."))
        return True

    def _succeed(self, run: Attempt, answer: EngineAnswer) -> None:
        if run.film is not None:
            answer = film_answer(run, answer)
        frames = seen_frames(run)
        store_result(self.blobs, run.claim.results, frames, answer.attention)
        whole = run.record(run.answer.joined_with(answer.answer))
        self.end_well(run, store_large_answer(self.blobs, run.claim.results, whole))
        self.reuse.keep(run, frames, answer)

    def end_well(self, run: Attempt, record: Mapping[str, Any]) -> None:
        """Ends the job as succeeded, on the record."""
        job = run.claim.job
        self.watch.release(run)
        is_ours = self.jobs.succeed(run.claim, record)
        run.is_settled = True
        log.info("job succeeded" if is_ours else "job was lost", job=job.id, caption=record.get("caption"))
        if not is_ours:
            remove_blob(self.blobs, run.claim.results)
        elif self.settings.upload_seconds == 0:
            remove_blob(self.blobs, job.upload)

    def fail(self, run: Attempt, error: ReelwordError) -> None:
        """Ends the job as failed, on the record."""
        self.watch.release(run)
        run.error = error
        is_ours = self.jobs.fail(run.claim, error, run.record())
        run.is_settled = True
        log.warning(
            "job failed", job=run.claim.job.id, code=error.code, message=str(error), hint=error.operator_hint
        )
        if is_ours:
            remove_blob(self.blobs, run.claim.job.upload)

    def settle_if_stopped(self, run: Attempt) -> bool:
        """Ends, on the record, a run that the watch has stopped; returns whether it is over."""
        if run.stopped is None or run.is_settled:
            return run.is_settled
        if run.stopped == "deadline":
            self.fail(run, DeadlineExceeded(self._lateness(run)))
        elif run.stopped == "canceled":
            self.jobs.stop(run.claim)
            delete_blobs(self.blobs, run.claim.job.id)
        elif run.stopped == "handed back":
            self.jobs.hand_back(run.claim)
        run.is_settled = True
        return True

    def _lateness(self, run: Attempt) -> str:
        seconds = self.settings.job_seconds
        if run.film is None:
            return f"The job ran longer than {seconds:g} seconds ({run.stage})."
        return f"No segment of the film was done within {seconds:g} seconds ({run.stage})."

    def hand_back(self, run: Attempt) -> None:
        """Puts the job back into the queue, unless it has ended."""
        run.stopped = run.stopped or "handed back"
        self.settle_if_stopped(run)


def seen_frames(run: Attempt) -> tuple[bytes, ...]:
    """Makes JPEG files of the frames that the captioner sees, or takes those that are kept."""
    if run.features is not None:
        return run.features.frames
    if run.stills is None:
        assert run.decoded is not None
        run.stills = tuple(frame_jpeg(pixels) for pixels in run.decoded.frames.pixels)
    return run.stills


def spans_of(run: Attempt) -> list[FinishedSpan]:
    """Makes the spans of a worker's turn at a job; the first turn tells of the queue as well."""
    job, end = run.claim.job, run.ended_at or run.began_at
    about: dict[str, Attribute] = {"reelword.job.id": job.id, "reelword.job.priority": job.priority}
    turn = FinishedSpan(
        "job", run.began_at, end, about | _outcome(run), children=_stages(run, end), error=_fault(run)
    )
    if run.first_attempt > 1:
        return [turn]
    queued = FinishedSpan("queue", job.created_at, max(job.created_at, job.started_at or end), about)
    return [queued, turn]


def _stages(run: Attempt, end: float) -> list[FinishedSpan]:
    """Makes a span of each stage; it lasts until the next one begins."""
    ends = [began for _, began in run.marks[1:]] + [end]
    return [FinishedSpan(stage, began, ended) for (stage, began), ended in zip(run.marks, ends, strict=True)]


def _outcome(run: Attempt) -> dict[str, Attribute]:
    options = run.options or run.claim.job.options
    found: dict[str, Attribute] = {
        "reelword.job.attempt": run.claim.job.attempt,
        "reelword.job.outcome": _said(run),
        "reelword.worker": run.claim.worker,
    }
    return found | ({"reelword.captioner": options.captioner} if options.captioner else {})


def _said(run: Attempt) -> str:
    if run.error is not None:
        return "failed"
    if run.stopped is not None:
        return run.stopped
    return "succeeded" if run.is_settled else "lost"


def _fault(run: Attempt) -> str | None:
    return None if run.error is None else f"{run.error.code}: {run.error}"
