"""Ends attempts on the record, with what they have found out in blobs and a trace, or starts the next one.

A job that shared the batch which died continues within the attempt it had; one that was alone starts its next
attempt, or has failed where it had its last.
"""

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from PIL import Image

from app.errors import DeadlineExceeded, JobFailure, QueueUnavailable, WorkerFault
from app.jobs.blobs import Blobs
from app.jobs.job_store import ANSWER_LIMIT, Claim, Jobs
from app.pipeline.engine_protocol import EngineAnswer
from app.tracing.spans import Attribute, FinishedSpan
from app.worker.attempt import Attempt
from app.worker.feature_reuse import FeatureReuse
from app.worker.watchdog import Watchdog
from extractors.errors import ReelwordError

FRAME_SIDE = 480  #: longest side of a kept frame, in pixels
FRAME_QUALITY = 85
log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JobEnds:
    """Ends the attempts of one worker; an attempt is ended by the thread that has it."""

    jobs: Jobs  #: the records
    blobs: Blobs  #: where uploads and results lie
    watch: Watchdog  #: keeps the leases until then
    job_seconds: float  #: that a job may take at most
    keeps_uploads: bool  #: whether an upload outlives its job
    reuse: FeatureReuse  #: keeps the features of what has been captioned

    def again(self, attempt: Attempt, cause: ReelwordError, *, was_shared: bool = False) -> bool:
        """Goes on to the next attempt at once; False where the job has ended or is no longer ours.

        Args:
            attempt: whose child has died, or met an error.
            cause: what is recorded where no attempt is left.
            was_shared: whether that may be another job's fault; then it has the same attempt once more.
        """
        with self.watch.pause():
            if attempt.stopped:
                self.settle_if_stopped(attempt)
                return False
            taken = self.jobs.claim_again(attempt.claim, cause, was_shared=was_shared)
            if isinstance(taken, Claim):
                log.warning("job starts again", job=taken.job.id, attempt=taken.job.attempt, why=str(cause))
                attempt.begin_again(taken)
                self.reuse.distrust(attempt)
                return True
            self.watch.release(attempt)
        log.warning("job is not run again", job=taken.job_id, why=taken.reason, cause=str(cause))
        attempt.error = cause if taken.reason == "exhausted" else None
        if taken.reason in ("canceled", "exhausted"):
            remove_blob(self.blobs, attempt.claim.job.upload)
        attempt.settle()
        return False

    def finish(self, attempt: Attempt, answer: EngineAnswer | JobFailure | None = None) -> bool:
        """Writes the result, without an answer what is known of the video; False where the job runs again."""
        if self.settle_if_stopped(attempt):
            return True
        if isinstance(answer, JobFailure):
            self.fail(attempt, answer)
            return True
        try:
            if answer is None:
                self._end_well(attempt, attempt.record())
            else:
                self._succeed(attempt, answer)
        except QueueUnavailable:
            raise
        except Exception:
            log.exception("the job's result could not be kept", job=attempt.claim.job.id)
            return not self.again(attempt, WorkerFault("The worker met an error while it kept the result."))
        return True

    def _succeed(self, attempt: Attempt, answer: EngineAnswer) -> None:
        if attempt.film is not None:
            answer = attempt.film.answer_of(answer)
        store_result(self.blobs, attempt.claim.results, attempt.clip.stills, answer.attention)
        whole = attempt.record(attempt.facts.joined_with(answer.answer))
        record, key = _store_large_answer(self.blobs, attempt.claim.results, whole), attempt.clip.feature_key
        if self._end_well(attempt, record, key and key[0]):
            self.reuse.keep(attempt.clip, answer)

    def _end_well(self, attempt: Attempt, record: Mapping[str, Any], sha256: str | None = None) -> bool:
        """Ends the job as succeeded, on the record; False where it was lost, or canceled meanwhile.

        sha256: of its file, where features of it are kept.
        """
        job = attempt.claim.job
        self.watch.release(attempt)
        is_ours = self.jobs.succeed(attempt.claim, record, sha256)
        attempt.settle()
        log.info("job succeeded" if is_ours else "job was lost", job=job.id, caption=record.get("caption"))
        if not is_ours:
            self._remove_lost(attempt)
        elif not self.keeps_uploads:
            remove_blob(self.blobs, job.upload)
        return is_ours

    def fail(self, attempt: Attempt, error: ReelwordError) -> None:
        """Ends the job as failed, on the record."""
        self.watch.release(attempt)
        attempt.error = error
        is_ours = self.jobs.fail(attempt.claim, error, attempt.record())
        attempt.settle()
        log.warning(
            "job failed",
            job=attempt.claim.job.id,
            code=error.code,
            message=str(error),
            hint=error.operator_hint,
        )
        if is_ours:
            remove_blob(self.blobs, attempt.claim.job.upload)
        else:
            self._remove_lost(attempt)

    def _remove_lost(self, attempt: Attempt) -> None:
        """Removes what an attempt has made that may not end its job: all of it where the job is canceled."""
        remove_blob(self.blobs, attempt.claim.results)
        if self.jobs.stop(attempt.claim):
            self._remove_all(attempt)

    def _remove_all(self, attempt: Attempt) -> None:
        """Removes all of a job's blobs, its upload included."""
        remove_blob(self.blobs, attempt.claim.job.upload)
        remove_blob(self.blobs, f"results/{attempt.claim.job.id}")

    def settle_if_stopped(self, attempt: Attempt) -> bool:
        """Ends, on the record, an attempt that the watch has stopped; returns whether it is over."""
        if attempt.stopped is None or attempt.is_settled:
            return attempt.is_settled
        if attempt.stopped == "deadline":
            self.fail(attempt, DeadlineExceeded(self._lateness(attempt)))
        elif attempt.stopped == "canceled":
            self.jobs.stop(attempt.claim)
            self._remove_all(attempt)
        elif attempt.stopped == "handed back":
            self.jobs.hand_back(attempt.claim)
        elif attempt.stopped == "gave way":
            self.jobs.give_way(attempt.claim)
        attempt.settle()
        return True

    def _lateness(self, attempt: Attempt) -> str:
        seconds = self.job_seconds
        if attempt.film is None:
            return f"The job ran longer than {seconds:g} seconds ({attempt.stage})."
        return f"No segment of the film was done within {seconds:g} seconds ({attempt.stage})."

    def hand_back(self, attempt: Attempt) -> None:
        """Puts the job back into the queue, unless it has ended."""
        attempt.stopped = attempt.stopped or "handed back"
        self.settle_if_stopped(attempt)


def frame_jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """Makes a JPEG of a frame uint8 (H, W, 3), made smaller where it is large."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((FRAME_SIDE, FRAME_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=FRAME_QUALITY)
    return buffer.getvalue()


def remove_blob(blobs: Blobs, key: str) -> None:
    """Removes a blob that is not needed any more; one that the store keeps now is left to the sweeps."""
    try:
        blobs.remove(key)
    except Exception:
        log.exception("a blob that is not needed any more could not be removed", key=key)


def store_result(blobs: Blobs, folder: str, frames: Sequence[bytes], attention: str | None) -> None:
    """Stores the frames and, where there is one, the attention document.

    Args:
        folder: key that they go below, the attempt's own.
        frames: JPEG files of those that the captioner saw.
        attention: the document as JSON, None where it was not asked for.
    """
    files = {f"{folder}/frames/{number}.jpg": frame for number, frame in enumerate(frames)}
    if attention is not None:
        files[f"{folder}/attention.json"] = attention.encode()
    blobs.write_all(files)


def _store_large_answer(blobs: Blobs, folder: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stores an answer too large for Redis; returns what is recorded: all of it, or the blob's key."""
    text = json.dumps(record)
    if len(text) <= ANSWER_LIMIT:
        return record
    key = f"{folder}/answer.json"
    blobs.write(key, text.encode())
    kept = {name: record[name] for name in ("media", "segments") if record.get(name) is not None}
    return {"blob": key, "timings": record.get("timings", {}), **kept}


def spans_of(attempt: Attempt) -> list[FinishedSpan]:
    """Makes the spans of a worker's turn at a job; the first turn has one of the queue as well."""
    job, end = attempt.claim.job, attempt.turn.ended_at or attempt.turn.began_at
    about: dict[str, Attribute] = {"reelword.job.id": job.id, "reelword.job.priority": job.priority}
    turn = FinishedSpan(
        "job",
        attempt.turn.began_at,
        end,
        about | _outcome(attempt),
        children=_stages(attempt, end),
        error=None if attempt.error is None else f"{attempt.error.code}: {attempt.error}",
    )
    if attempt.turn.first_attempt > 1:
        return [turn]
    queued = FinishedSpan("queue", job.created_at, max(job.created_at, job.started_at or end), about)
    return [queued, turn]


def _stages(attempt: Attempt, end: float) -> list[FinishedSpan]:
    """Makes a span of each stage; it lasts until the next one begins."""
    ends = [began for _, began in attempt.turn.marks[1:]] + [end]
    return [
        FinishedSpan(stage, began, ended)
        for (stage, began), ended in zip(attempt.turn.marks, ends, strict=True)
    ]


def _outcome(attempt: Attempt) -> dict[str, Attribute]:
    options = attempt.claim.job.options if attempt.contents is None else attempt.contents.options
    attributes: dict[str, Attribute] = {
        "reelword.job.attempt": attempt.claim.job.attempt,
        "reelword.job.outcome": _end_of(attempt),
        "reelword.worker": attempt.claim.worker,
    }
    return attributes | ({"reelword.captioner": options.captioner} if options.captioner else {})


def _end_of(attempt: Attempt) -> str:
    if attempt.error is not None:
        return "failed"
    if attempt.stopped is not None:
        return attempt.stopped
    return "succeeded" if attempt.is_settled else "lost"
