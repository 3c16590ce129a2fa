"""Makes a job of an upload: ``POST /caption``.

The order matters: room is asked for before a byte is read, the file is on disk before the job exists, and
the job is on Redis's disk before its 202.
"""

import re
from contextlib import aclosing
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse

from app.api import problems, refusals
from app.api.accepting.acceptance import Acceptance, check_room
from app.api.accepting.repeated_request import REPLAYED, IdempotencyKey, RepeatedRequest
from app.api.dependencies import ApiDependencies, CallerDep, ServiceDep
from app.api.receiving.bodies import RAW, kind_of, receive_body
from app.api.receiving.fields import VIDEO_FIELDS, body_schema, fields_schema, object_schema, read_request
from app.api.receiving.option_body import FORM, JSON
from app.api.receiving.upload import UNLIMITED, announced_bytes
from app.documents.job import Accepted, JobDocument, document_of, urls_of
from app.errors import ServiceError
from app.jobs.job import Job

LONGEST_WAIT = 60.0  #: seconds that ``Prefer: wait`` can hold a request

router = APIRouter(tags=["caption"])


def _body_schema() -> dict[str, Any]:
    # One of video, url and file is there; a schema that says so (oneOf) is more than generated clients read.
    file = {"type": "string", "format": "binary", "description": "The file."}
    form, members = fields_schema(), fields_schema(is_json=True)
    schemas = {
        FORM: object_schema({"video": file, **form}),
        JSON: object_schema({**members, **{name: form[name] for name in VIDEO_FIELDS}}),
    }
    return body_schema(schemas | dict.fromkeys(("video/*", "image/*", *RAW), file))


def describe_answers(*refused: type[ServiceError]) -> dict[int | str, dict[str, Any]]:
    """Describes what a route that makes a job answers: the job, or one of the refusals."""
    applied = "How long was waited for, where `Prefer` asked for it."
    headers = {
        **problems.header("Location", "The job's address."),
        **problems.header("Preference-Applied", applied),
        **REPLAYED,
    }
    in_time = "With `Prefer: wait=N`, where the job ended in time."
    return {
        200: {"model": JobDocument, "description": in_time, "headers": headers},
        202: {"headers": headers | problems.RETRY_AFTER},
        **problems.openapi_responses(
            *refusals.OF_SUBMISSIONS, refusals.IdempotencyMismatch, refusals.IdempotencyInProgress, *refused
        ),
    }


Prefer = Annotated[
    str | None,
    Header(
        description="`wait=N` (RFC 7240): hold the request up to N seconds, at most 60, for the job's end.",
        examples=["wait=30"],
    ),
]


@router.post(
    "/caption",
    status_code=202,
    response_model=Accepted,
    max_body_size=UNLIMITED,
    openapi_extra=_body_schema(),
    responses=describe_answers(
        refusals.UploadTooLarge,
        refusals.VideoMissing,
        refusals.VideoEmpty,
        refusals.SeveralVideos,
        refusals.UrlNotSupported,
        refusals.UnknownFile,
        refusals.FileIncomplete,
    ),
)
async def caption_video(
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    prefer: Prefer = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Takes a video, its address or a file that was sent before, and answers with a job; the caption is in
    the job when its state is `succeeded`.

    Where the body is the video alone (`video/*`, `image/*`, `application/octet-stream`), fields and
    `filename` stand behind the `?` of the address; a form and JSON have them inside.
    """
    kind_of(request.headers)
    limit = caller.upload_limit(service.settings.max_upload_bytes)
    async with RepeatedRequest(service.idempotency, idempotency_key, caller.owner).held() as repeated:
        if repeated.is_first:
            announced, most = announced_bytes(request.headers), service.settings.max_upload_bytes
            await anyio.to_thread.run_sync(check_room, service, caller, announced, most)
        with service.blobs.staged() as file:
            body = repeated.renewed(request.stream())
            upload = await receive_body(
                body, request.headers, request.query_params, file, limit, service.room
            )
            submission = read_request(upload.fields, is_json=upload.is_json)
            accept = Acceptance(service, caller).accept_once
            accepted = await anyio.to_thread.run_sync(accept, submission, upload, repeated)
    return await answer(request, service, accepted, preferred_wait(prefer))


def preferred_wait(prefer: str | None) -> float | None:
    """Reads the seconds of ``wait`` in a Prefer header (RFC 7240), at most LONGEST_WAIT; None where there is
    none.

    What cannot be read is passed over, as the RFC asks.
    """
    match = re.search(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])', prefer or "", re.IGNORECASE)
    return None if match is None else min(float(match[1]), LONGEST_WAIT)


async def answer(
    request: Request, service: ApiDependencies, made: tuple[Job, bool], wait: float | None
) -> Response:
    """Answers with a job that has been accepted: 202, or 200 with the whole job where it ended in time.

    Args:
        request: whose sender may hang up.
        made: the job as it was accepted, and whether that was by an earlier request.
        wait: seconds to wait for its end; None where the client does not ask for that.
    """
    job, is_replayed = made
    headers = {"Location": f"{service.root}/jobs/{job.id}"} | (
        {"Idempotency-Replayed": "true"} if is_replayed else {}
    )
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:.0f}"
        job = await _wait(request, service, job, wait)
    if wait is not None and job.is_over:
        document = await anyio.to_thread.run_sync(document_of, job, service.blobs, None, service.base)
        return JSONResponse(document.model_dump(mode="json"), 200, headers)
    accepted = Accepted(id=job.id, state=job.state, urls=urls_of(job, service.blobs, service.base))
    return JSONResponse(accepted.model_dump(mode="json"), 202, {**headers, "Retry-After": "1"})


async def _wait(request: Request, service: ApiDependencies, job: Job, seconds: float) -> Job:
    """Waits for a job's end, unless its key waits for as many as may be. Raises ClientDisconnect."""
    owner = job.submission.owner
    if service.events.is_full_for(owner):
        return job
    async with aclosing(service.events.looks(job.id, seconds, request, owner, has_place=False)) as looks:
        async for _ in looks:
            current: Job | None = await anyio.to_thread.run_sync(service.jobs.get, job.id)
            job = current or job
            if job.is_over:
                break
    return job
