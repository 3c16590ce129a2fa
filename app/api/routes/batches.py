"""Answers ``/batches``: takes many videos at once, counts their jobs, cancels them, hands out all results."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from app.api import problems, refusals
from app.api.accepting.acceptance import Acceptance, check_room
from app.api.accepting.repeated_request import REPLAYED, IdempotencyKey, RepeatedRequest
from app.api.dependencies import ApiDependencies, Caller, CallerDep, ServiceDep
from app.api.receiving.batch_body import AT_ONCE, COMMON_FIELDS, receive_batch
from app.api.receiving.bodies import kind_of, refuse_query
from app.api.receiving.fields import body_schema, fields_schema, object_schema
from app.api.receiving.option_body import FORM, JSON
from app.api.receiving.upload import UNLIMITED, announced_bytes
from app.documents.batch import BatchDocument, batch_document_of
from app.documents.job import document_of
from app.errors import RecordUnreadable
from app.jobs.batches import BATCH_ID, MOST_ITEMS, JobBatch

JSONL = "application/jsonl"
BatchId = Annotated[str, Path(description="The id that POST /batches answered with.")]
LOCATION = problems.header("Location", "The batch's address.")

router = APIRouter(prefix="/batches", tags=["batches"])


def _body_schema() -> dict[str, Any]:
    form, members = fields_schema(COMMON_FIELDS), fields_schema(COMMON_FIELDS, is_json=True)
    many = {"type": "array", "minItems": 1, "maxItems": MOST_ITEMS}
    videos = {**many, "items": {"type": "string", "format": "binary"}, "description": "The files."}
    urls = {**many, "items": fields_schema()["url"], "description": "Where videos are fetched from."}
    some = [{"required": ["video"]}, {"required": ["url"]}]
    return body_schema(
        {
            FORM: object_schema({"video": videos, "url": urls, **form}, anyOf=some),
            JSON: object_schema({"urls": urls, **members}, required=["urls"]),
        }
    )


@router.post(
    "",
    status_code=202,
    response_model=BatchDocument,
    max_body_size=UNLIMITED,
    openapi_extra=_body_schema(),
    responses={
        202: {"headers": LOCATION | REPLAYED | problems.RETRY_AFTER},
        **problems.openapi_responses(
            *refusals.OF_SUBMISSIONS,
            refusals.UploadTooLarge,
            refusals.BatchTooLarge,
            refusals.TooManyItems,
            refusals.VideoMissing,
            refusals.VideoEmpty,
            refusals.UrlNotSupported,
            refusals.IdempotencyMismatch,
            refusals.IdempotencyInProgress,
            refusals.TooManyBatches,
        ),
    },
)
async def submit_batch(
    request: Request, service: ServiceDep, caller: CallerDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Takes many videos, or their addresses, and answers with a batch of jobs.

    Options are given once, for all. All are taken or none: what is wrong with one refuses the batch.
    """
    kind_of(request.headers)
    refuse_query(request.query_params)
    most = caller.upload_limit(service.settings.max_upload_bytes)
    together = service.settings.max_batch_bytes
    accept = Acceptance(service, caller).accept_batch_once
    async with RepeatedRequest(service.idempotency, idempotency_key, caller.owner).held() as repeated:
        if repeated.is_first:
            announced = announced_bytes(request.headers)
            await anyio.to_thread.run_sync(check_room, service, caller, announced, together)
        if service.batch_turns.locked():
            raise refusals.TooManyBatches(f"{AT_ONCE} batches are being received already.")
        async with service.batch_turns:
            with ExitStack() as stack:
                body = repeated.renewed(request.stream())
                upload = await receive_batch(
                    body, request.headers, most, together, service.blobs, service.room, stack
                )
                batch, is_replayed = await anyio.to_thread.run_sync(accept, upload, repeated)
    document = await anyio.to_thread.run_sync(_document, service, batch)
    headers = {"Location": f"{service.root}/batches/{document.id}", "Retry-After": "1"}
    if is_replayed:
        headers["Idempotency-Replayed"] = "true"
    return JSONResponse(document.model_dump(mode="json"), 202, headers)


@router.get(
    "/{batch_id}",
    response_model=BatchDocument,
    responses={
        200: {"headers": problems.RETRY_AFTER, "description": "With `Retry-After` while it is not over."},
        **problems.openapi_responses(refusals.UnknownBatch),
    },
)
def get_batch(batch_id: BatchId, service: ServiceDep, caller: CallerDep) -> Response:
    """Counts a batch's jobs by state, and names each."""
    return _answer(_document(service, _find_batch(service, batch_id, caller)))


@router.delete(
    "/{batch_id}",
    response_model=BatchDocument,
    responses={
        200: {"description": "All its jobs are over."},
        202: {
            "model": BatchDocument,
            "description": "Some of its jobs run; their workers have been told to stop.",
            "headers": problems.RETRY_AFTER,
        },
        **problems.openapi_responses(refusals.UnknownBatch),
    },
)
def cancel_batch(batch_id: BatchId, service: ServiceDep, caller: CallerDep) -> Response:
    """Cancels those jobs of a batch that are not over; results of the others are kept."""
    batch = _find_batch(service, batch_id, caller)
    for item in batch.items:
        try:
            ending = service.jobs.cancel(item.job_id)
        except RecordUnreadable:
            continue  # no worker runs it, and the log has it for the operator
        if ending == "done":
            service.blobs.remove(f"uploads/{item.job_id}")
    document = _document(service, batch)
    return _answer(document, 202 if document.counts.running else 200)


@router.get(
    "/{batch_id}/results.jsonl",
    response_class=StreamingResponse,
    responses={
        200: {"content": {JSONL: {}}, "description": "A job a line, as `GET /jobs/{job_id}` has it."},
        **problems.openapi_responses(refusals.UnknownBatch),
    },
)
def get_batch_results(batch_id: BatchId, service: ServiceDep, caller: CallerDep) -> Response:
    """Hands out the jobs of a batch that are over, a line each, in its order; also while others run."""
    batch = _find_batch(service, batch_id, caller)
    name = f'attachment; filename="{batch.id}.jsonl"'
    headers = {"Cache-Control": "no-store", "Content-Disposition": name}
    return StreamingResponse(_lines(service, batch), media_type=JSONL, headers=headers)


def _lines(service: ApiDependencies, batch: JobBatch) -> Iterator[str]:
    """Reads one job at a time, so that memory does not grow with the batch."""
    for item in batch.items:
        try:
            job = service.jobs.get(item.job_id)
            if job is not None and job.is_over:
                yield document_of(job, service.blobs, root=service.base).model_dump_json() + "\n"
        except RecordUnreadable as error:
            yield json.dumps({"id": item.job_id, "state": None, "error": error.document()}) + "\n"


def _find_batch(service: ApiDependencies, batch_id: str, caller: Caller) -> JobBatch:
    """Finds a batch. Raises UnknownBatch: there is none, or the caller neither owns it nor sees all."""
    batch = service.batches.get(batch_id) if BATCH_ID.fullmatch(batch_id) else None
    if batch is None or (caller.only is not None and batch.owner != caller.only):
        raise refusals.UnknownBatch(f"There is no batch {batch_id[:64]}.")
    return batch


def _document(service: ApiDependencies, batch: JobBatch) -> BatchDocument:
    return batch_document_of(batch, service.batches.states(batch), service.base)


def _answer(document: BatchDocument, status: int = 200) -> Response:
    is_over = document.counts.queued + document.counts.running == 0
    headers = {"Cache-Control": "no-store"} | ({} if is_over else {"Retry-After": "1"})
    return JSONResponse(document.model_dump(mode="json"), status, headers)
