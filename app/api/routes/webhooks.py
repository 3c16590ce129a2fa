"""Answers ``/jobs/{id}/deliveries``, how telling of a job's end went, and ``/webhooks/test``, a trial."""

import uuid
from typing import Annotated

import anyio.to_thread
from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, WithJsonSchema

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.api.receiving.fields import ADDRESS_PATTERN
from app.api.routes.jobs import JobId, find
from app.documents.deliveries import Deliveries, TestedWebhook
from app.fetching.addresses import LONGEST, read_web_address
from app.webhooks.messages import trial_message

router = APIRouter(tags=["webhooks"])


class WebhookTest(BaseModel, frozen=True, extra="forbid"):
    """Asks for a trial request."""

    url: Annotated[
        str,
        AfterValidator(lambda url: str(read_web_address(url))),
        WithJsonSchema({"type": "string", "pattern": ADDRESS_PATTERN, "maxLength": LONGEST}),
    ]


@router.get(
    "/jobs/{job_id}/deliveries",
    response_model=Deliveries,
    responses=problems.openapi_responses(refusals.UnknownJob),
)
async def list_deliveries(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Deliveries:
    """Lists what was done to tell the job's webhook of its end: attempts, answers, when the next one is."""
    job = await anyio.to_thread.run_sync(find, service, job_id, caller)
    return Deliveries(deliveries=await service.webhooks.store.deliveries(job.id))


@router.post(
    "/webhooks/test", response_model=TestedWebhook, responses=problems.openapi_responses(refusals.WebhooksOff)
)
async def test_webhook(asked: WebhookTest, service: ServiceDep, caller: CallerDep) -> TestedWebhook:
    """Sends a signed message of the type `webhook.test` once, and returns how it was answered."""
    sender = service.webhooks.sender
    if sender is None:
        raise refusals.WebhooksOff()
    message = trial_message(f"msg_{uuid.uuid4().hex}")
    secret = None if caller.key is None else caller.key.webhook_secret
    result = await sender.send(asked.url, message.id, message.body, secret)
    return TestedWebhook(
        webhook_id=message.id,
        delivered=result.is_delivered,
        status=result.status,
        error=result.error,
        seconds=result.seconds,
    )
