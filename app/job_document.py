"""A job's record as the document that callers read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from app.blobs import BlobMissingError, Blobs
from app.documents import JobDocument
from app.errors import RecordUnreadable
from app.jobs import Job

ANSWER_MEMBERS = ("media", "sampled", "caption", "captions", "model")


def document_of(job: Job, blobs: Blobs) -> JobDocument:
    """Every member of the contract; what is not known (yet) is null. Raises RecordUnreadable."""
    try:
        return _document(job, _answer(job, blobs))
    except (ValueError, TypeError, AttributeError) as error:
        reason = str(error).splitlines()[0]
        raise RecordUnreadable(f"The answer of job {job.id} cannot be read: {reason}.") from error


def _document(job: Job, answer: Mapping[str, Any]) -> JobDocument:
    return JobDocument.model_validate(
        {
            "id": job.id,
            "state": job.state,
            "stage": job.stage,
            "progress": job.progress,
            "created_at": rfc3339(job.created_at),
            "started_at": rfc3339(job.started_at),
            "ended_at": rfc3339(job.ended_at),
            "attempt": job.attempt,
            "filename": job.filename or None,
            **{name: answer.get(name) for name in ANSWER_MEMBERS},
            "warnings": answer.get("warnings") or [],
            "timings": job.timings,
            "error": job.error,
        }
    )


def rfc3339(seconds: float | None) -> str | None:
    """Seconds since 1970 → ``2026-11-28T05:40:21.123Z``."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(job: Job, blobs: Blobs) -> Mapping[str, Any]:
    """From the record, or from the blob that the record names where it outgrew Redis."""
    key = job.answer.get("blob")
    if key is None:
        return job.answer
    try:
        whole: dict[str, Any] = json.loads(blobs.read(key))
    except BlobMissingError:
        return job.answer
    return whole
