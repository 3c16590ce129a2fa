"""Answers ``/jobs/{id}``: how a job is, where its captioner looked, cancelling it and deleting its result."""

from __future__ import annotations

import io
import json
import re
from typing import Annotated

from fastapi import APIRouter, Path, Response
from fastapi.responses import JSONResponse
from PIL import Image

from app.api import problems
from app.api.dependencies import ApiDependencies, Caller, CallerDep, ServiceDep
from app.attention_picture.render import draw_attention_picture
from app.documents.job import JobDocument, document_of
from app.jobs.blobs import BlobMissingError
from app.jobs.job import Job
from models.caption import AttentionDocument

JobId = Annotated[str, Path(description="The id that POST /caption answered with.")]
JOB_ID = re.compile(r"[0-9a-f]{32}")
#: Results never change, and their address cannot be guessed.
KEEP = {"Cache-Control": "private, max-age=86400, immutable"}
NO_ATTENTION = (problems.UnknownJob, problems.JobHasNoAttention, problems.JobNotFinished)

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.get(
    "",
    response_model=JobDocument,
    responses={
        200: {"headers": problems.RETRY_AFTER, "description": "With `Retry-After` while it is not over."},
        **problems.openapi_responses(problems.UnknownJob),
    },
)
def job(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Shows the job as it stands. Members that are not known (yet) are null."""
    return _document(find(service, job_id, caller), service)


@router.delete(
    "",
    response_model=JobDocument,
    responses={
        200: {"description": "It waited and is canceled, or it was over and its result is deleted."},
        202: {
            "model": JobDocument,
            "description": "It runs; its worker has been told to stop.",
            "headers": problems.RETRY_AFTER,
        },
        **problems.openapi_responses(problems.UnknownJob),
    },
)
def delete(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Cancels a job: at once where it waits, within two seconds where it runs. Deletes the result of one that
    is over, which is `expired` then.
    """
    found = find(service, job_id, caller)
    ending = service.jobs.cancel(found.id)
    if ending == "done":
        service.blobs.remove(found.upload)
    if ending == "over":
        _delete_result(find(service, job_id, caller), service)
    return _document(find(service, job_id, caller), service, 202 if ending == "asked" else 200)


def _delete_result(job: Job, service: ApiDependencies) -> None:
    """A canceled job has none, and stays canceled: DELETE may be sent twice."""
    if job.state != "canceled":
        service.jobs.expire(job.id)
    service.blobs.remove(job.upload)
    service.blobs.remove(f"results/{job.id}")
    if job.submission.sha256 is not None:
        service.features.forget(job.submission.sha256)


@router.get(
    "/attention", response_model=AttentionDocument, responses=problems.openapi_responses(*NO_ATTENTION)
)
def attention(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Tells where the captioner looked for each word of the best caption."""
    return Response(
        _attention(service, find(service, job_id, caller)), media_type="application/json", headers=KEEP
    )


@router.get(
    "/attention.png",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}, "description": "The picture."},
        **problems.openapi_responses(*NO_ATTENTION),
    },
)
def attention_png(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Draws for every word the frame it looked at, with the heat of where in it; once, then it is kept."""
    job = find(service, job_id, caller)
    document = _attention(service, job)
    key = f"{job.results}/attention.png"
    try:
        data = service.blobs.read(key)
    except BlobMissingError:
        data = _draw(service, job, document)
        service.blobs.write(key, data)
    return Response(data, media_type="image/png", headers=KEEP)


@router.get(
    "/frames/{number}.jpg",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {}}, "description": "The frame, its long side at most 480 pixels."},
        **problems.openapi_responses(problems.UnknownJob, problems.UnknownFrame),
    },
)
def frame(job_id: JobId, number: int, service: ServiceDep, caller: CallerDep) -> Response:
    """Shows a frame that the captioner saw, counted from 0 in the order of `sampled`."""
    job = find(service, job_id, caller)
    try:
        data = service.blobs.read(f"{job.results}/frames/{number}.jpg")
    except BlobMissingError as error:
        raise problems.UnknownFrame(f"The job has no frame {number}.") from error
    return Response(data, media_type="image/jpeg", headers=KEEP)


def find(service: ApiDependencies, job_id: str, caller: Caller) -> Job:
    """Finds a job that the caller may see. Raises UnknownJob, for those of other owners too."""
    job = service.jobs.get(job_id) if JOB_ID.fullmatch(job_id) else None
    if job is None or not caller.sees(job):
        raise problems.UnknownJob(f"There is no job {job_id[:64]}.")
    return job


def _document(job: Job, service: ApiDependencies, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store"} | ({} if job.is_over else {"Retry-After": "1"})
    document = document_of(job, service.blobs, service.positions.of(job))
    return JSONResponse(document.model_dump(mode="json"), status, headers)


def _attention(service: ApiDependencies, job: Job) -> bytes:
    """Reads the attention document as the engine wrote it."""
    if not job.is_over:
        raise problems.JobNotFinished(f"The job is {job.state}; its attention comes with its caption.")
    if job.state != "succeeded":
        raise problems.JobHasNoAttention(f"The job has {how_it_ended(job)}, so it has no attention.")
    try:
        return service.blobs.read(f"{job.results}/attention.json")
    except BlobMissingError as error:
        raise problems.JobHasNoAttention("The job was sent with attention=false.") from error


def _draw(service: ApiDependencies, job: Job, document: bytes) -> bytes:
    sampled = document_of(job, service.blobs).sampled or []
    keys = [f"{job.results}/frames/{number}.jpg" for number in range(len(sampled))]
    frames = [Image.open(io.BytesIO(service.blobs.read(key))) for key in keys]
    attention = AttentionDocument.model_validate(json.loads(document))
    out = io.BytesIO()
    draw_attention_picture(attention, frames, sampled).save(out, "PNG", optimize=True)
    return out.getvalue()


def how_it_ended(job: Job) -> str:
    """Says, behind ``has``, how a job ended."""
    return {"canceled": "been cancelled", "expired": "expired"}.get(job.state, job.state)
