"""Answers ``/jobs/{id}``: how a job is, where its captioner looked, cancelling it and deleting its result."""

import io
import json
import re
from collections.abc import Callable
from contextlib import aclosing
from pathlib import PurePath
from typing import Annotated
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import JSONResponse
from PIL import Image

from app.api import problems, refusals
from app.api.dependencies import ApiDependencies, Caller, CallerDep, ServiceDep
from app.api.etags import split_etags, weak_etag
from app.api.routes.submit import preferred_wait
from app.attention_picture.poster import ClipKind, draw_clip, draw_poster
from app.attention_picture.render import draw_attention_picture
from app.documents.job import JobDocument, document_of
from app.jobs.blobs import BlobMissingError
from app.jobs.job import Job
from models.caption import AttentionDocument

JobId = Annotated[str, Path(description="The id that POST /caption answered with.")]
JOB_ID = re.compile(r"[0-9a-f]{32}")
#: Results never change, and their address cannot be guessed.
KEEP = {"Cache-Control": "private, max-age=86400, immutable"}
ETAG = problems.header("ETag", "Names this state of the job.")
IfNoneMatch = Annotated[str | None, Header(description="The `ETag` of the state that is known.")]
LongPoll = Annotated[
    str | None,
    Header(
        description="`wait=N` beside `If-None-Match`: hold up to N seconds, at most 60, for a change.",
        examples=["wait=30"],
    ),
]
Clip = Annotated[ClipKind, Path(description="Chats and browsers play MP4; animated WebP is smaller.")]
CLIPS: dict[ClipKind, str] = {"mp4": "video/mp4", "webp": "image/webp", "gif": "image/gif"}
PosterWord = Annotated[str, Query(max_length=64, description="A word of the caption, to be lit.")]
NO_ATTENTION = (refusals.UnknownJob, refusals.JobHasNoAttention, refusals.JobNotFinished)

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.get(
    "",
    response_model=JobDocument,
    responses={
        200: {
            "headers": problems.RETRY_AFTER | ETAG,
            "description": "With `Retry-After` while it is not over.",
        },
        304: {"headers": problems.RETRY_AFTER | ETAG, "description": "It is as `If-None-Match` knows it."},
        **problems.openapi_responses(refusals.UnknownJob),
    },
)
async def get_job(
    job_id: JobId,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    if_none_match: IfNoneMatch = None,
    prefer: LongPoll = None,
) -> Response:
    """Shows the job as it stands. Members that are not known (yet) are null. With `If-None-Match`, answers
    304 while it is unchanged, and with `Prefer: wait=N` beside it waits up to N seconds for a change.
    """
    etags = split_etags(if_none_match)
    wait = preferred_wait(prefer) if etags else None
    if wait is None:
        _, response = await anyio.to_thread.run_sync(_show, service, job_id, caller)
        return _unless_known(response, etags)
    response = await _change(request, service, job_id, caller, etags, wait)
    response.headers["Preference-Applied"] = f"wait={wait:.0f}"
    return response


async def _change(
    request: Request, service: ApiDependencies, job_id: str, caller: Caller, etags: list[str], seconds: float
) -> Response:
    """Waits for a job to be other than the client knows it, ``seconds`` at most, and shows it."""
    await anyio.to_thread.run_sync(find, service, job_id, caller)
    if service.events.is_full_for(caller.owner):
        raise refusals.KeyFollowsEnough()
    async with aclosing(service.events.looks(job_id, seconds, request, caller.owner)) as looks:
        async for is_last in looks:
            shown, response = await anyio.to_thread.run_sync(_show, service, job_id, caller)
            if shown.is_over or is_last or not _is_known(response, etags):
                return _unless_known(response, etags)
    raise refusals.UnknownJob(f"There is no job {job_id[:64]}.")


def _show(service: ApiDependencies, job_id: str, caller: Caller) -> tuple[Job, Response]:
    shown = find(service, job_id, caller)
    return shown, _document(shown, service)


def _is_known(response: Response, etags: list[str]) -> bool:
    return response.headers["ETag"] in etags or "*" in etags


def _unless_known(response: Response, etags: list[str]) -> Response:
    """Answers 304 where the client has this state of the job already."""
    if not _is_known(response, etags):
        return response
    kept = ("ETag", "Retry-After", "Cache-Control")
    return Response(None, 304, {name: response.headers[name] for name in kept if name in response.headers})


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
        **problems.openapi_responses(refusals.UnknownJob),
    },
)
def cancel_job(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Cancels a job: at once where it waits, within two seconds where it runs. Deletes the result of one that
    is over, which is `expired` then.
    """
    target = find(service, job_id, caller)
    ending = service.jobs.cancel(target.id)
    if ending == "done":
        service.blobs.remove(target.upload)
    if ending == "over":
        _delete_result(find(service, job_id, caller), service)
    return _document(find(service, job_id, caller), service, 202 if ending == "asked" else 200)


def _delete_result(job: Job, service: ApiDependencies) -> None:
    """A canceled job has none, and stays canceled: DELETE may be sent twice."""
    if job.state != "canceled":
        service.jobs.expire(job.id)
    service.blobs.remove(job.upload)
    service.blobs.remove(f"results/{job.id}")
    if job.sha256 is not None:
        service.features.forget(job.sha256)


@router.get(
    "/attention", response_model=AttentionDocument, responses=problems.openapi_responses(*NO_ATTENTION)
)
def get_attention(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Returns where the captioner looked for each word of the best caption."""
    data = _attention(service, find(service, job_id, caller))
    return Response(data, media_type="application/json", headers=KEEP)


@router.get(
    "/attention.png",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}, "description": "The picture."},
        **problems.openapi_responses(*NO_ATTENTION),
    },
)
def draw_attention(job_id: JobId, service: ServiceDep, caller: CallerDep) -> Response:
    """Draws for every word the frame it looked at, with the heat of where in it; once, then it is kept."""
    job = find(service, job_id, caller)
    document = _attention(service, job)

    def draw() -> bytes:
        sampled = document_of(job, service.blobs).sampled or []
        attention = AttentionDocument.model_validate_json(document)
        return _png(draw_attention_picture(attention, _frames(service, job), sampled), optimize=True)

    data = _draw_once(service, f"{job.results}/attention.png", draw)
    return Response(data, media_type="image/png", headers=keep_as(job, "-attention.png"))


@router.get(
    "/clip.{kind}",
    response_class=Response,
    responses={
        200: {"content": {each: {} for each in CLIPS.values()}, "description": "The clip."},
        **problems.openapi_responses(*NO_ATTENTION, refusals.UnknownFrame, refusals.ClipKindMissing),
    },
)
def get_clip(job_id: JobId, kind: Clip, service: ServiceDep, caller: CallerDep) -> Response:
    """Draws a clip of 3 to 6 seconds to pass on, once, then it is kept: the frame of each word with its place
    lit and the caption on it.
    """
    job = find(service, job_id, caller)
    document = _attention(service, job)

    def draw() -> bytes:
        answer = document_of(job, service.blobs)
        times, frames = answer.sampled or [0.0], _frames(service, job)
        try:
            attention = AttentionDocument.model_validate_json(document)
            return draw_clip(answer.caption or "", frames, times, attention, kind)
        except ImportError as error:
            raise refusals.ClipKindMissing("This server writes no MP4.") from error

    data = _draw_once(service, f"{job.results}/clip.{kind}", draw)
    return Response(data, media_type=CLIPS[kind], headers=keep_as(job, f"-clip.{kind}"))


@router.get(
    "/poster.png",
    response_class=Response,
    responses={
        200: {"content": {"image/png": {}}, "description": "The picture, 1200 × 630."},
        **problems.openapi_responses(refusals.UnknownJob, refusals.JobNotFinished, refusals.UnknownFrame),
    },
)
def get_poster(job_id: JobId, service: ServiceDep, caller: CallerDep, word: PosterWord = "") -> Response:
    """Draws one frame with the caption on it and one word's place lit: what chats show of the job's page."""
    job = find(service, job_id, caller)
    if job.state != "succeeded":
        raise refusals.JobNotFinished(f"The job has {how_it_ended(job)}: there is no caption to draw.")
    document, frames = document_of(job, service.blobs), _frames(service, job)
    try:
        shown: AttentionDocument | None = AttentionDocument.model_validate_json(_attention(service, job))
    except refusals.JobHasNoAttention:
        shown = None
    picture = draw_poster(document.caption or "", frames, document.sampled or [0.0], shown, word)
    return Response(_png(picture), media_type="image/png", headers=keep_as(job, "-poster.png"))


@router.get(
    "/frames/{number}.jpg",
    response_class=Response,
    responses={
        200: {"content": {"image/jpeg": {}}, "description": "The frame, its long side at most 480 pixels."},
        **problems.openapi_responses(refusals.UnknownJob, refusals.UnknownFrame),
    },
)
def get_frame(job_id: JobId, number: int, service: ServiceDep, caller: CallerDep) -> Response:
    """Shows a frame that the captioner saw, counted from 0 in the order of `sampled`."""
    job = find(service, job_id, caller)
    missing = refusals.UnknownFrame(f"The job has no frame {number}.")
    data = read_blob(service, f"{job.results}/frames/{number}.jpg", missing)
    return Response(data, media_type="image/jpeg", headers=KEEP)


def read_blob(service: ApiDependencies, key: str, missing: refusals.RequestError) -> bytes:
    """Reads what a route sends.

    Args:
        missing: is raised where it is not there.
    """
    try:
        return service.blobs.read(key)
    except BlobMissingError as error:
        raise missing from error


def find(service: ApiDependencies, job_id: str, caller: Caller) -> Job:
    """Finds a job that the caller may see. Raises UnknownJob: there is none, or it is another owner's.

    Args:
        job_id: as it stands in the address.
    """
    job = service.jobs.get(job_id) if JOB_ID.fullmatch(job_id) else None
    if job is None or not caller.sees(job):
        raise refusals.UnknownJob(f"There is no job {job_id[:64]}.")
    return job


def _document(job: Job, service: ApiDependencies, status: int = 200) -> Response:
    headers = {"Cache-Control": "no-store"} | ({} if job.is_over else {"Retry-After": "1"})
    position = service.positions.of(job)
    document = document_of(job, service.blobs, position, service.base).model_dump(mode="json")
    # an estimate that another moment makes is no other state: the tag is weak
    tag = weak_etag(json.dumps({**document, "estimated_seconds": None}).encode())
    return JSONResponse(document, status, {**headers, "ETag": tag})


def _attention(service: ApiDependencies, job: Job) -> bytes:
    """Reads the attention document as the engine wrote it."""
    if not job.is_over:
        raise refusals.JobNotFinished(f"The job is {job.state}; its attention comes with its caption.")
    if job.state != "succeeded":
        ended = refusals.JobHasNoAttention(f"The job has {how_it_ended(job)}, so it has no attention.")
        ended.hint = refusals.JobHasNoCaptions.hint
        raise ended
    option = "validate_only=true" if job.submission.validate_only else "attention=false"
    missing = refusals.JobHasNoAttention(f"The job was sent with {option}.")
    return read_blob(service, f"{job.results}/attention.json", missing)


def _draw_once(service: ApiDependencies, key: str, draw: Callable[[], bytes]) -> bytes:
    """Reads a picture that was drawn before, or draws and keeps it."""
    try:
        return service.blobs.read(key)
    except BlobMissingError:
        data = draw()
    service.blobs.write(key, data)
    return data


def _png(picture: Image.Image, **options: bool) -> bytes:
    out = io.BytesIO()
    picture.save(out, "PNG", **options)
    return out.getvalue()


def _frames(service: ApiDependencies, job: Job) -> list[Image.Image]:
    """Reads the frames that the captioner saw. Raises UnknownFrame where they are not kept."""
    count = len(document_of(job, service.blobs).sampled or [])
    keys = [f"{job.results}/frames/{number}.jpg" for number in range(count)]
    try:
        return [Image.open(io.BytesIO(service.blobs.read(key))) for key in keys]
    except BlobMissingError as error:
        raise refusals.UnknownFrame("The job's frames are kept no more.") from error


def disposition(filename: str, *, is_shown: bool) -> str:
    """Makes a Content-Disposition header (RFC 6266), whose file name may have any letters (RFC 5987), or be
    empty.

    ``is_shown``: a browser may show the file, rather than save it.
    """
    kind = "inline" if is_shown else "attachment"
    if not filename:
        return kind
    plain = re.sub(r"[^ !#-\[\]-~]", "_", filename)
    extended = "" if plain == filename else f"; filename*=UTF-8''{quote(filename, safe='')}"
    return f'{kind}; filename="{plain}"{extended}'


def keep_as(job: Job, ending: str) -> dict[str, str]:
    """Makes the headers of a result: browsers keep it, and save it under the film's name with ``ending``."""
    name = f"{PurePath(job.filename).stem or job.id}{ending}"
    return {**KEEP, "Content-Disposition": disposition(name, is_shown=True)}


def how_it_ended(job: Job) -> str:
    """Returns, to follow ``has``, how a job ended."""
    return {"canceled": "been cancelled", "expired": "expired"}.get(job.state, job.state)
