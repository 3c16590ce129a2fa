"""Makes a job of an upload: ``POST /caption``.

The order matters: room is asked for before a byte is read, the file is on disk before the job exists, and
the job is on Redis's disk before its 202.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any
from uuid import uuid4

import anyio
import anyio.to_thread
from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.requests import ClientDisconnect

from app.api import problems
from app.api.dependencies import ApiDependencies, Caller, CallerDep, ServiceDep
from app.api.receiving.disk_space import announced_bytes
from app.api.receiving.upload import Upload, receive
from app.documents.job import Accepted, JobDocument, JobUrls, document_of
from app.errors import CaptionerUnavailable, EmbeddingMissing, MembersDiffer
from app.jobs.job import Job, Submission
from app.jobs.options import CaptionOptions, form_schema

LONGEST_WAIT = 60.0  #: seconds that ``Prefer: wait`` can hold a request
POLL_SECONDS, LONGEST_POLL = 0.1, 1.0  #: between two looks at a job that is waited for
BOOLEANS = ("true", "false")

router = APIRouter(tags=["caption"])


def _form_schema() -> dict[str, Any]:
    """Describes the form for OpenAPI: the body is read by hand, so nothing can derive it."""
    video = {"type": "string", "format": "binary", "description": "The file."}
    properties = {"video": video, **form_schema()}
    schema = {
        "type": "object",
        "required": ["video"],
        "properties": properties,
        "additionalProperties": False,
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


LOCATION = {"Location": {"description": "The job's address.", "schema": {"type": "string"}}}
APPLIED = {
    "Preference-Applied": {
        "description": "How long was waited for, where `Prefer` asked for it.",
        "schema": {"type": "string"},
    }
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
    openapi_extra=_form_schema(),
    responses={
        200: {
            "model": JobDocument,
            "description": "With `Prefer: wait=N`, where the job ended in time.",
            "headers": LOCATION | APPLIED,
        },
        202: {"headers": LOCATION | APPLIED | problems.RETRY_AFTER},
        **problems.openapi_responses(
            problems.MalformedForm,
            problems.UploadStalled,
            problems.UploadTooLarge,
            problems.NotMultipart,
            problems.VideoMissing,
            problems.VideoEmpty,
            problems.SeveralVideos,
            problems.UrlNotSupported,
            problems.OptionInQuery,
            problems.UnknownField,
            problems.InvalidOption,
            problems.CaptionerUnknown,
            problems.InvalidMembers,
            problems.BacklogFull,
            problems.StorageFull,
        ),
    },
)
async def caption(
    request: Request, service: ServiceDep, caller: CallerDep, prefer: Prefer = None
) -> Response:
    """Takes a video and answers with a job; the caption is in the job when its state is `succeeded`."""
    _refuse_query(request)
    await anyio.to_thread.run_sync(_check_room, service, caller, request.headers)
    limit = caller.upload_limit(service.settings.max_upload_bytes)
    with service.blobs.staged() as file:
        upload = await receive(request.stream(), request.headers, file, limit, room=service.room)
        job = await anyio.to_thread.run_sync(
            _submit, service, upload, Submission(owner=caller.owner, limits=caller.limits)
        )
    return await _answer(request, service, job, preferred_wait(prefer))


def _refuse_query(request: Request) -> None:
    """Raises OptionInQuery: an option that is not read must not be passed over."""
    if request.url.query:
        names = ", ".join(dict.fromkeys(request.query_params)) or request.url.query
        raise problems.OptionInQuery(f"The address has {names[:100]} behind its question mark.")


def preferred_wait(prefer: str | None) -> float | None:
    """Reads the seconds of ``wait`` in a Prefer header (RFC 7240), at most LONGEST_WAIT; None where there is
    none.

    What cannot be read is passed over, as the RFC asks.
    """
    found = re.search(r'(?:^|[,;])\s*wait\s*=\s*"?(\d{1,9})"?\s*(?:$|[,;])', prefer or "", re.IGNORECASE)
    return None if found is None else min(float(found[1]), LONGEST_WAIT)


def _check_room(service: ApiDependencies, caller: Caller, headers: Mapping[str, str]) -> None:
    service.jobs.check_concurrency(caller.owner, caller.limits)
    needed = announced_bytes(headers)
    if needed <= service.settings.max_upload_bytes:  # else refused for its size in a moment
        service.room.check(needed)
    if service.waiting() >= service.settings.max_backlog:
        raise problems.BacklogFull(f"{service.settings.max_backlog} jobs are waiting already.")


def _submit(service: ApiDependencies, upload: Upload, submission: Submission) -> Job:
    """Makes a blob of the file and a job of the blob; where that fails, neither is left."""
    job_id = uuid4().hex
    key = f"uploads/{job_id}"
    try:
        options = _choose_captioner(service, parse_options(upload.fields))
        service.blobs.adopt(upload.file, key)
        job = service.jobs.submit(job_id, options, key, filename=upload.filename, submission=submission)
    except BaseException:
        upload.file.unlink(missing_ok=True)
        service.blobs.remove(key)
        raise
    service.metrics.upload_bytes.observe(upload.size)
    return job


def parse_options(fields: Mapping[str, str]) -> CaptionOptions:
    """Reads options from the form's texts. Raises InvalidOption, which names the first that is wrong."""
    try:
        return CaptionOptions.model_validate(dict(fields))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name, said = str(first["loc"][0]) if first["loc"] else "", first["msg"].removeprefix("Value error, ")
        if not name:
            raise problems.InvalidOption(f"{said}.") from error
        known = BOOLEANS if first["type"].startswith("bool") else None
        raise problems.InvalidOption(f"{name} is {fields[name][:64]!r}: {said}.", known=known) from error


def _choose_captioner(service: ApiDependencies, options: CaptionOptions) -> CaptionOptions:
    """Fills in who writes, which then stands in the record: nobody chooses again.

    Where no worker lives nothing is known, and the job waits for one, which chooses.
    """
    choices = service.registry.captioner_choices()
    if not choices.names:
        return options
    try:
        return options.with_choice(choices.resolve(options))
    except CaptionerUnavailable as failure:
        raise problems.CaptionerUnknown(
            f"No worker has a captioner called {failure.name}.", known=failure.known
        ) from failure
    except EmbeddingMissing as failure:
        detail = "No worker has the captioner fusion, nor the semantic embedding that it chooses captions by."
        raise problems.CaptionerUnknown(detail, known=choices.names) from failure
    except MembersDiffer as failure:
        raise problems.InvalidMembers(str(failure)) from failure


async def _answer(request: Request, service: ApiDependencies, job: Job, wait: float | None) -> Response:
    headers = {"Location": f"/jobs/{job.id}"}
    if wait is not None:
        headers["Preference-Applied"] = f"wait={wait:.0f}"
        job = await _wait(request, service, job, wait)
    if wait is not None and job.is_over:
        document = await anyio.to_thread.run_sync(document_of, job, service.blobs)
        return JSONResponse(document.model_dump(mode="json"), 200, headers)
    accepted = Accepted(id=job.id, state=job.state, urls=urls_of(job.id))
    return JSONResponse(accepted.model_dump(mode="json"), 202, {**headers, "Retry-After": "1"})


def urls_of(job_id: str) -> JobUrls:
    path = f"/jobs/{job_id}"
    return JobUrls(
        self=path, attention=f"{path}/attention", attention_png=f"{path}/attention.png", cancel=path
    )


async def _wait(request: Request, service: ApiDependencies, job: Job, seconds: float) -> Job:
    """Waits for a job's end, ``seconds`` at most, and returns it as it stands. Raises ClientDisconnect.

    It is asked for ever more rarely, so that an answer comes late by a tenth at most and many who wait cost
    little.
    """
    began = anyio.current_time()
    while not job.is_over and (waited := anyio.current_time() - began) < seconds:
        pause = min(max(POLL_SECONDS, waited / 10), LONGEST_POLL)
        await anyio.sleep(min(pause, seconds - waited))
        if await request.is_disconnected():
            raise ClientDisconnect
        found = await anyio.to_thread.run_sync(service.jobs.get, job.id)
        job = found or job
    return job
