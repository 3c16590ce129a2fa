"""Makes another job of a job's video: ``POST /jobs/{id}/recaption``.

The new job has a copy of the upload of its own, so that either may be deleted without the other; in a folder
the two share their bytes on the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import anyio.to_thread
from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from app.api import problems
from app.api.dependencies import ApiDependencies, Caller, CallerDep, ServiceDep
from app.api.receiving.acceptance import choose_captioner
from app.api.receiving.bodies import refuse_query
from app.api.receiving.fields import BOOLEANS
from app.api.receiving.option_body import receive_options
from app.api.routes.jobs import JobId, find
from app.api.routes.submit import (
    APPLIED,
    LOCATION,
    Prefer,
    answer,
    check_room,
    preferred_wait,
)
from app.documents.job import Accepted, JobDocument
from app.jobs.blobs import BlobMissingError
from app.jobs.job import Job
from app.jobs.options import FORM_FIELDS, CaptionOptions, form_schema

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


def _body_schema() -> dict[str, Any]:
    """Describes the body for OpenAPI: it is read by hand, so nothing can derive it."""
    form = {"type": "object", "properties": form_schema(), "additionalProperties": False}
    plain = CaptionOptions.model_json_schema()["properties"]
    values = {name: {"anyOf": [plain[name], {"type": "null"}]} for name in FORM_FIELDS}
    document = {"type": "object", "properties": values, "additionalProperties": False}
    content = {
        "application/json": {"schema": document},
        "multipart/form-data": {"schema": form},
        "application/x-www-form-urlencoded": {"schema": form},
    }
    return {"requestBody": {"required": False, "content": content}}


@router.post(
    "/recaption",
    status_code=202,
    response_model=Accepted,
    openapi_extra=_body_schema(),
    responses={
        200: {
            "model": JobDocument,
            "description": "With `Prefer: wait=N`, where the new job ended in time.",
            "headers": LOCATION | APPLIED,
        },
        202: {"headers": LOCATION | APPLIED | problems.RETRY_AFTER},
        **problems.openapi_responses(
            problems.UnknownJob,
            problems.UploadGone,
            problems.MalformedForm,
            problems.UploadStalled,
            problems.NotMultipart,
            problems.OptionInQuery,
            problems.UnknownField,
            problems.InvalidOption,
            problems.CaptionerUnknown,
            problems.InvalidMembers,
            problems.PromptNotTaken,
            problems.BacklogFull,
            problems.StorageFull,
        ),
    },
)
async def recaption(
    job_id: JobId, request: Request, service: ServiceDep, caller: CallerDep, prefer: Prefer = None
) -> Response:
    """Captions a job's video once more, by another captioner or with other options: those that are not given
    are the job's own. Answers as `POST /caption` does, with a new job, whose `recaption_of` is this one.
    """
    refuse_query(request.query_params)
    job = await anyio.to_thread.run_sync(find, service, job_id, caller)
    fields = await receive_options(request.stream(), request.headers)
    await anyio.to_thread.run_sync(check_room, service, {})
    again = await anyio.to_thread.run_sync(_submit_again, service, job, fields, caller)
    return await answer(request, service, again, preferred_wait(prefer))


def options_over(job: Job, fields: Mapping[str, Any]) -> CaptionOptions:
    """Changes a job's options by those that are given.

    Args:
        job: whose options count where nothing is given.
        fields: option → its text, or its value.

    Returns:
        The options; members and prompt are the job's only where nobody else is to write.

    Raises:
        InvalidOption: names the first that is wrong.
    """
    own = job.options.model_dump(exclude_unset=True)
    if "captioner" in fields:
        own.pop("members", None)
        own.pop("prompt", None)
    given = {**own, **fields}
    try:
        return CaptionOptions.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, said = str(first["loc"][0]) if first["loc"] else "", first["msg"].removeprefix("Value error, ")
        if not name:
            raise problems.InvalidOption(f"{said}.") from error
        known = BOOLEANS if first["type"].startswith("bool") else None
        raise problems.InvalidOption(f"{name} is {str(given[name])[:64]!r}: {said}.", known=known) from error


def _submit_again(service: ApiDependencies, job: Job, fields: Mapping[str, Any], caller: Caller) -> Job:
    """Makes a job of a copy of the upload; where that fails, neither is left. Raises UploadGone."""
    options = choose_captioner(service, options_over(job, fields))
    told: dict[str, object] = {"owner": caller.owner, "limits": caller.limits, "recaption_of": job.id}
    told |= {"batch": None, "webhook": None}
    submission = job.submission.model_copy(update={**told, "source_url": None, "validate_only": False})
    again = uuid4().hex
    key = f"uploads/{again}"
    try:
        service.blobs.copy(job.upload, key)
        with service.submitting(again, submission) as sent:
            return service.jobs.submit(again, options, key, filename=job.filename, submission=sent)
    except BlobMissingError as error:
        raise problems.UploadGone(f"The video of job {job.id} is not kept.") from error
    except BaseException:
        service.blobs.remove(key)
        raise
