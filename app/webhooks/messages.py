"""Writes and signs the message of a job's end, as the Standard Webhooks specification has it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from standardwebhooks import Webhook

from app.documents.deliveries import EndedJob, WebhookMessage
from app.documents.job import document_of, rfc3339
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


def end_message(job: Job, state: State, blobs: Blobs) -> Message:
    """Writes the message of a job's end.

    Args:
        job: as it stands; its result may be forgotten already.
        state: in which it ended.
        blobs: where a long answer lies.
    """
    document = document_of(job, blobs)
    error = document.error
    members = document.model_dump(include=set(EndedJob.model_fields)) | {
        "state": state,
        "caption": document.caption and document.caption[:LONGEST_TEXT],
        "error": error and {**error.model_dump(), "message": error.message[:LONGEST_TEXT]},
    }
    data = EndedJob.model_validate(members).model_dump(mode="json")
    return _message(f"msg_{job.id}", f"job.{state}", data, document.ended_at)


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
