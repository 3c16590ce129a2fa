"""Makes the spans of a worker's turn at a job, for its trace."""

from __future__ import annotations

from app.tracing.spans import Attribute, FinishedSpan
from app.worker.attempt import Attempt


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
