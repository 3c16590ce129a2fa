"""Declares the JSON of a batch: how many of its jobs are in which state, and what each was sent for."""

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from app.documents.job import Document, rfc3339
from app.jobs.batches import JobBatch
from app.jobs.job import STATES, State


class BatchUrls(Document):
    """Names what to ask next; ``cancel`` is asked with DELETE, the others with GET."""

    self: str
    results: str
    cancel: str


class BatchCounts(Document):
    """Counts a batch's jobs by state, at one moment."""

    total: int
    queued: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    expired: int = Field(description="Those that are forgotten already too.")


class BatchEntry(Document):
    """Names one job of a batch."""

    id: str
    filename: str | None = None
    url: str | None = Field(None, description="Where its video is fetched; null: it was uploaded.")
    state: State


class BatchDocument(Document):
    """Describes a batch."""

    id: str
    created_at: str | None
    metadata: dict[str, Any] | None = None
    urls: BatchUrls
    counts: BatchCounts
    jobs: list[BatchEntry] = Field(description="Files before addresses, each in the order that they came in.")


def batch_document_of(batch: JobBatch, states: Sequence[State], root: str) -> BatchDocument:
    """Makes a batch's document.

    Args:
        states: that its jobs have now.
        root: what its addresses begin with.
    """
    counts = {state: states.count(state) for state in STATES}
    path = f"{root}/batches/{batch.id}"
    return BatchDocument(
        id=batch.id,
        created_at=rfc3339(batch.created_at),
        metadata=batch.metadata,
        urls=BatchUrls(self=path, results=f"{path}/results.jsonl", cancel=path),
        counts=BatchCounts(total=len(states), **counts),
        jobs=[
            BatchEntry(id=item.job_id, filename=item.filename or None, url=item.url, state=state)
            for item, state in zip(batch.items, states, strict=True)
        ],
    )
