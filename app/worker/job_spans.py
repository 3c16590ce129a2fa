"""Tells of a job's turn as spans of its trace: how long it waited, and when each stage began and ended."""

from __future__ import annotations

from app.tracing.spans import Attribute, FinishedSpan
from app.worker.watchdog import Attempt


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
