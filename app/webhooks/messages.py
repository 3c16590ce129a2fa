"""Writes and signs the messages of a job's events, as the Standard Webhooks specification has it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from standardwebhooks import Webhook

from app.documents.deliveries import ToldJob, WebhookMessage
from app.documents.events import SegmentEvent
from app.documents.job import document_of, rfc3339, segment_lines
from app.jobs.blobs import Blobs
from app.jobs.job import Job, State

LONGEST_TEXT = 2000  #: characters of a caption or an error's sentence: a message stays below 20 kB
TEST_TYPE = "webhook.test"


@dataclass(frozen=True)
class Message:
    """Holds what is sent."""

    id: str  #: the same in each attempt, so that a receiver knows what it has had
    type: str
    body: str  #: JSON


def job_message(job: Job, state: State, blobs: Blobs, number: int = 1, segment: int | None = None) -> Message:
    """Writes the message of an event of a job.

    Args:
        job: as it stands; its result may be forgotten already.
        state: in which it was then.
        blobs: where a long answer lies, and segments.
        number: of the message among those of the job, from 1.
        segment: number of the segment that is done, where that is the event.
    """
    document = document_of(job, blobs)
    error = document.error
    members = document.model_dump(include=set(ToldJob.model_fields)) | {
        "state": state,
        "caption": document.caption and document.caption[:LONGEST_TEXT],
        "error": error and {**error.model_dump(), "message": error.message[:LONGEST_TEXT]},
    }
    kind, timestamp = f"job.{state}", document.ended_at
    if segment is not None:
        kind, timestamp = "job.segment", rfc3339(time.time())
        members["segment"] = _segment(job, blobs, segment)
    elif state == "running":
        kind, timestamp = "job.started", document.started_at
    message_id = f"msg_{job.id}" if number == 1 else f"msg_{job.id}_{number}"
    return _message(message_id, kind, ToldJob.model_validate(members).model_dump(mode="json"), timestamp)


def _segment(job: Job, blobs: Blobs, number: int) -> SegmentEvent | None:
    """Reads a segment; None where it is kept no more, as of a job that was deleted meanwhile."""
    for line in segment_lines(job, blobs, range(number, number + 1)):
        return SegmentEvent(number=number, **line.model_dump() | {"caption": line.caption[:LONGEST_TEXT]})
    return None


def trial_message(message_id: str) -> Message:
    """Writes a message that tries a webhook out."""
    return _message(message_id, TEST_TYPE, {"message": "This is a test."}, rfc3339(time.time()))


def _message(message_id: str, kind: str, data: dict[str, object], timestamp: str | None) -> Message:
    body = WebhookMessage(type=kind, timestamp=timestamp, data=data)
    return Message(message_id, kind, body.model_dump_json())


def signed_headers(secrets: Sequence[str], message_id: str, body: str, now: float) -> Mapping[str, str]:
    """Makes the headers by which a receiver knows who sent a message, and when.

    Args:
        secrets: each signs, so that a receiver may have the old one or the new.
        message_id: of the message.
        body: exactly as it is sent.
        now: seconds since 1970, of this attempt.
    """
    moment = datetime.fromtimestamp(int(now), UTC)
    signatures = [Webhook(secret).sign(message_id, moment, body) for secret in secrets]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now)),
        "webhook-signature": " ".join(signatures),
        "content-type": "application/json",
    }
