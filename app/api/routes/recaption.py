"""Makes another job of a job's video: ``POST /jobs/{id}/recaption``.

The new job has a copy of the upload of its own, so that either may be deleted without the other; in a folder
the two share their bytes on the disk.
"""

from collections.abc import Mapping
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, Request, Response

from app.api import refusals
from app.api.accepting.acceptance import Acceptance, check_room
from app.api.accepting.repeated_request import IdempotencyKey, RepeatedRequest
from app.api.dependencies import CallerDep, ServiceDep
from app.api.receiving import fields
from app.api.receiving.bodies import refuse_query
from app.api.receiving.option_body import FORM, JSON, PLAIN_FORM, OptionBody, receive_options
from app.api.receiving.upload import UNLIMITED
from app.api.routes.jobs import JobId, find
from app.api.routes.submit import Prefer, answer, describe_answers, preferred_wait
from app.documents.job import Accepted
from app.jobs.job import Job
from app.jobs.options import FORM_FIELDS

#: The fields that the new job may have: all but those of a video.
FIELDS = tuple(name for name in fields.REQUEST_FIELDS if name not in (*fields.VIDEO_FIELDS, "validate_only"))
#: Options that belong to a captioner, and are not another one's.
CAPTIONERS_OWN = ("members", "segment_captioner", "prompt", "fusion_rule", "category")

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


def _body_schema() -> dict[str, Any]:
    form = fields.object_schema(fields.fields_schema(FIELDS))
    document = fields.object_schema(fields.fields_schema(FIELDS, is_json=True))
    return fields.body_schema({JSON: document, FORM: form, PLAIN_FORM: form}, is_required=False)


@router.post(
    "/recaption",
    status_code=202,
    response_model=Accepted,
    max_body_size=UNLIMITED,
    openapi_extra=_body_schema(),
    responses=describe_answers(refusals.UnknownJob, refusals.UploadGone),
)
async def recaption_video(
    job_id: JobId,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Captions a job's video once more, by another captioner or with other options: those that are not given
    are the job's own. Answers as `POST /caption` does, with a new job, whose `recaption_of` is this one.
    """
    refuse_query(request.query_params)
    job = await anyio.to_thread.run_sync(find, service, job_id, caller)
    accept = Acceptance(service, caller).accept_again
    async with RepeatedRequest(service.idempotency, idempotency_key, caller.owner).held() as repeated:
        body = await receive_options(repeated.renewed(request.stream()), request.headers, FIELDS)
        if repeated.is_first:
            await anyio.to_thread.run_sync(check_room, service, caller, 0, 0)
        accepted = await anyio.to_thread.run_sync(accept, request_over(job, body), job, repeated)
    return await answer(request, service, accepted, preferred_wait(prefer))


def request_over(job: Job, body: OptionBody) -> fields.CaptionRequest:
    """Changes what a job was asked for (options, metadata, priority) by the fields that are given.

    What belongs to a captioner is kept only where no other one is to write. Raises InvalidOption.
    """
    inherited: Mapping[str, Any] = {
        **job.options.model_dump(include=set(FORM_FIELDS), exclude_defaults=True),
        "metadata": job.submission.metadata,
        "priority": job.priority,
    }
    if "captioner" in body.fields:
        inherited = {name: value for name, value in inherited.items() if name not in CAPTIONERS_OWN}
    return fields.read_request({**inherited, **body.fields}, is_json=body.is_json)
