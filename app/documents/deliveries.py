"""Declares what webhooks send, and how their deliveries are shown."""

from typing import Any, Literal

from pydantic import Field

from app.documents.events import SegmentEvent
from app.documents.job import Document, Fault
from app.jobs.job import State

#: What a webhook is told, by the type of its message.
EVENTS = {
    "job.started": "A worker has begun the job",
    "job.segment": "A segment of a film is done",
    "job.succeeded": "The job has its caption",
    "job.failed": "The job has failed",
    "job.canceled": "The job was canceled",
}
DeliveryState = Literal["pending", "delivered", "failed"]


class ToldJob(Document):
    """Describes a job in few bytes, as it was at an event."""

    id: str
    state: State
    caption: str | None = None
    error: Fault | None = None
    filename: str | None = None
    metadata: dict[str, Any] | None = None
    batch: str | None = None
    recaption_of: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    segment: SegmentEvent | None = Field(
        None, description="Of `job.segment`: what is done; null if it is kept no more."
    )


class WebhookMessage(Document):
    """Is the body of a webhook's request, as Standard Webhooks has it."""

    type: str = Field(examples=["job.succeeded"])
    timestamp: str | None = Field(description="RFC 3339, UTC: when it happened.")
    data: dict[str, Any]


class AttemptDocument(Document):
    """Describes one attempt at a delivery."""

    number: int = Field(description="Counted from 1; one that is missing died with the process that made it.")
    at: str = Field(description="RFC 3339, UTC.")
    status: int | None = Field(None, description="HTTP status of the answer; null where none came.")
    error: str | None = Field(None, description="Why it did not count; null where it did.")
    seconds: float


class DeliveryDocument(Document):
    """Describes the delivery of one message."""

    webhook_id: str = Field(description="The same in each attempt: a receiver drops the second of one id.")
    type: str
    host: str
    state: DeliveryState
    next_attempt_at: str | None = Field(None, description="RFC 3339, UTC; null once it is over.")
    attempts: list[AttemptDocument] = Field(description="The last 50.")


class Deliveries(Document):
    """Lists the deliveries of a job's messages in their order, without those that wait behind another one."""

    deliveries: list[DeliveryDocument]


class TestedWebhook(Document):
    """Describes how a trial request was answered."""

    webhook_id: str
    delivered: bool
    status: int | None = None
    error: str | None = None
    seconds: float
