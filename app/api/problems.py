"""Names what can be wrong with a request, and writes it as RFC 9457 problem documents.

    RequestError
    ├── NotMultipart        415 not_multipart        the body is neither a form, nor a video, nor JSON
    ├── MalformedForm       400 malformed_form       the form cannot be read or is cut off
    ├── MalformedJson       400 malformed_json       the body is no JSON object
    ├── UploadTooLarge      413 upload_too_large
    ├── UploadStalled       408 upload_stalled       hardly a byte came for 20 seconds
    ├── VideoMissing        422 video_missing        no field called video, and no url
    ├── VideoEmpty          422 video_empty          zero bytes
    ├── SeveralVideos       422 several_videos       one job, one video
    ├── UrlNotSupported     422 url_not_supported    the operator has switched fetching off
    ├── OptionInQuery       422 option_in_query      beside a form or JSON options are no part of the address
    ├── UnknownField        422 unknown_field        known lists the fields
    ├── InvalidOption       422 invalid_option       known lists the values, where they can be listed
    ├── KeyMissing          401 key_missing
    ├── KeyWrong            401 key_wrong            unknown, revoked or expired
    ├── KeyScopeTooSmall    403 key_scope            it may not do this
    ├── RateLimited         429 rate_limited
    ├── IdempotencyMismatch 422 idempotency_mismatch the key belongs to another request
    ├── IdempotencyInProgress 409 idempotency_in_progress  the first request with the key still comes in
    ├── UnknownJob          404 unknown_job
    ├── UnknownFrame        404 unknown_frame
    ├── JobNotFinished      409 job_not_finished     its attention or captions are asked for too early
    ├── JobHasNoAttention   404 no_attention         not asked for, or the job did not succeed
    ├── JobHasNoCaptions    404 no_captions          it did not succeed
    ├── VideoNotKept        404 video_not_kept       its file is not there any more, or not yet
    ├── RangeNotSatisfied   416 range_not_satisfied  bytes that the file does not have
    ├── UploadGone          409 upload_gone          neither file nor features are kept to caption it again
    ├── UnknownSegment      404 unknown_segment      its film has no such segment
    ├── BatchTooLarge       413 batch_too_large      its videos together
    ├── TooManyItems        422 too_many_items       more videos than a batch may have
    ├── UnknownBatch        404 unknown_batch
    ├── TooManyBatches      503 too_many_batches     are being received at the moment
    ├── BacklogFull         503 backlog_full
    ├── NotReady            503 not_ready            asked by /readyz: no Redis, or no worker with models
    ├── HostNotAllowed      400 host_not_allowed     asked for by a name that is not the service's
    ├── OriginNotAllowed    403 origin_not_allowed   sent by a page from elsewhere
    ├── BodyTooLarge        413 body_too_large       of a request that brings no video
    ├── HeadersTooLarge     431 headers_too_large
    ├── RequestStalled      408 request_stalled      its headers did not come
    ├── TooManyConnections  503 too_many_connections
    ├── TooManyFollowers    503 too_many_followers   of jobs' events
    ├── WebhooksOff         422 webhooks_off         the operator has set up no secret to sign them with
    └── StorageFull         507 storage_full

Errors of the queue, of records and of options that no worker takes (app/errors.py) are answered the same way.
A problem's ``type`` is ``urn:reelword:problem:<code>``; codes are stable, sentences may change.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, ClassVar, TypeAlias

from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response

from app.errors import (
    CaptionerUnknown,
    EmbeddingMissing,
    InvalidCursor,
    InvalidMembers,
    OptionNotTaken,
    OptionsRefused,
    PromptNotTaken,
    QueueError,
    RecordUnreadable,
    TooManyJobs,
)
from extractors.errors import ReelwordError

MEDIA_TYPE = "application/problem+json"
#: For the ``headers`` of a response in OpenAPI.
RETRY_AFTER = {
    "Retry-After": {"description": "Seconds until asking again makes sense.", "schema": {"type": "integer"}}
}


class Cause(BaseModel):
    """One thing that is wrong with the service, as ``/readyz`` lists them."""

    code: str = Field(description="Stable name; docs/operate.md lists all.")
    message: str
    hint: str = Field(description="What its operator can do, in a sentence.")


class Problem(BaseModel):
    """The body of every answer that is not a success."""

    type: str = Field(examples=["urn:reelword:problem:video_missing"])
    title: str = Field(description="The kind of problem; the same for every occurrence.")
    status: int
    detail: str = Field(description="What is wrong with this request, in a sentence.")
    instance: str = Field(description="The path that was asked for.")
    code: str = Field(description="Stable name of the problem; docs/api.md lists all.")
    hint: str = Field(description="What to do about it, in a sentence.")
    known: list[str] | None = Field(None, description="The accepted values, where they can be listed.")
    causes: list[Cause] | None = Field(None, description="Of `not_ready`: everything that is wrong.")


class RequestError(ReelwordError):
    """Base of the tree. ``str(error)`` is one sentence about this request."""

    status = HTTPStatus.BAD_REQUEST
    code = "request_error"
    title = "The request cannot be served"
    retry_after: int | None = None
    challenge: ClassVar[str | None] = None  #: for WWW-Authenticate

    def __init__(
        self, detail: str = "", *, known: Sequence[str] | None = None, retry_after: int | None = None
    ) -> None:
        super().__init__(detail or self.title + ".")
        self.known = None if known is None else list(known)
        self.retry_after = self.retry_after if retry_after is None else retry_after
        self.headers: dict[str, str] = {}


class NotMultipart(RequestError):
    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    code = "not_multipart"
    title = "The body is of a kind that is not taken"
    hint = (
        "Send the file as the form field video: curl -F video=@clip.mp4 …, or as the body with its content "
        "type: -H 'Content-Type: video/mp4' --data-binary @clip.mp4."
    )


class MalformedForm(RequestError):
    code = "malformed_form"
    title = "The form cannot be read"
    hint = "Send the form again; if it happens again, the client builds its multipart body wrongly."


class MalformedJson(RequestError):
    code = "malformed_json"
    title = "The JSON cannot be read"
    hint = 'Send one object of at most 64 KiB in UTF-8: {"url": "https://…", "beam_size": 8}.'


class UploadTooLarge(RequestError):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "upload_too_large"
    title = "The upload is too large"
    hint = "Send a shorter or smaller video."
    operator_hint = "REELWORD_MAX_UPLOAD_BYTES is the limit of all, a key's max-upload that of its own."


class UploadStalled(RequestError):
    status = HTTPStatus.REQUEST_TIMEOUT
    code = "upload_stalled"
    title = "The upload stood still for too long"
    hint = "Send the video again over a connection that holds."


class VideoMissing(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "video_missing"
    title = "The request has no video"
    hint = "Send the file as the form field video: curl -F video=@clip.mp4 …, or its address as url."


class VideoEmpty(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "video_empty"
    title = "The video has no bytes"
    hint = "Check that the file is complete on your side and send it again."


class SeveralVideos(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "several_videos"
    title = "The request has more than one video"
    hint = "Send one request for each video."


class UrlNotSupported(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "url_not_supported"
    title = "This server does not fetch videos"
    hint = "Fetch the file yourself and send it as the form field video."


class OptionInQuery(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "option_in_query"
    title = "Options stand in the address"
    hint = (
        "Send options as fields of the form: curl -F video=@clip.mp4 -F beam_size=8 …; behind the address "
        "they belong where the body is the video alone."
    )


class UnknownField(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "unknown_field"
    title = "The request has a field that is not known"
    hint = "Use the fields listed under known."


class InvalidOption(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "invalid_option"
    title = "An option has a value that is not accepted"
    hint = "Correct the option or leave it out to get its default."


class KeyMissing(RequestError):
    status = HTTPStatus.UNAUTHORIZED
    code = "key_missing"
    title = "The service needs an API key"
    hint = (
        "Send Authorization: Bearer and your key; at the page, enter it. The service's operator gives keys."
    )
    operator_hint = "Make one with reelword keys add NAME."
    challenge = 'Bearer realm="reelword"'


class KeyWrong(RequestError):
    status = HTTPStatus.UNAUTHORIZED
    code = "key_wrong"
    title = "The API key opens nothing"
    hint = "Check that the key is whole; if it is, it was revoked or has expired: ask for a new one."
    operator_hint = "See reelword keys list."
    challenge = 'Bearer realm="reelword", error="invalid_token"'


class KeyScopeTooSmall(RequestError):
    status = HTTPStatus.FORBIDDEN
    code = "key_scope"
    title = "The API key may not do this"
    hint = "Use a key that may: reading needs the scope read, writing write, the service's numbers admin."
    operator_hint = "Make one with reelword keys add NAME --scope write."
    challenge = 'Bearer realm="reelword", error="insufficient_scope"'


class RateLimited(RequestError):
    status = HTTPStatus.TOO_MANY_REQUESTS
    code = "rate_limited"
    title = "The API key has sent too many requests"
    hint = "Wait as long as Retry-After says, and send fewer at a time."
    operator_hint = "Keys have their rates from reelword keys add."


class IdempotencyMismatch(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "idempotency_mismatch"
    title = "The idempotency key belongs to another request"
    hint = "Send each new request with a key of its own; repeat one with the same video and fields."


class IdempotencyInProgress(RequestError):
    status = HTTPStatus.CONFLICT
    code = "idempotency_in_progress"
    title = "The first request with this idempotency key is still being received"
    hint = "Send the request again after Retry-After seconds; it is answered with the first one's job."
    retry_after = 1


class UnknownJob(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "unknown_job"
    title = "There is no such job"
    hint = "Check the id; jobs are forgotten some time after they have ended."
    operator_hint = "REELWORD_RESULT_TTL is how long."


class UnknownFrame(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "unknown_frame"
    title = "The job has no such frame"
    hint = "Frames are counted from 0; the job's sampled member has one time for each."


class JobNotFinished(RequestError):
    status = HTTPStatus.CONFLICT
    code = "job_not_finished"
    title = "The job has not finished"
    hint = "Ask for the job until its state is succeeded, then for its attention or its captions."
    retry_after = 1


class JobHasNoAttention(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "no_attention"
    title = "The job has no attention"
    hint = "Attention comes with a caption, unless the video was sent with attention=false."


class JobHasNoCaptions(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "no_captions"
    title = "The job has no captions"
    hint = "Look at the job's error, then send the video again."


class VideoNotKept(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "video_not_kept"
    title = "The job's video is not kept"
    hint = "Play your own copy; urls.video in the job says whether there is one here."


class RangeNotSatisfied(RequestError):
    """size: bytes of the file."""

    status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
    code = "range_not_satisfied"
    title = "The file does not have the bytes that Range asks for"
    hint = "Ask for bytes that it has, or without Range for all of it."

    def __init__(self, detail: str = "", *, size: int = 0) -> None:
        super().__init__(detail)
        self.headers = {"Content-Range": f"bytes */{size}"}


class UploadGone(RequestError):
    status = HTTPStatus.CONFLICT
    code = "upload_gone"
    title = "The job's video is not kept, so it cannot be captioned again"
    hint = "Send the video again with POST /caption."


class UnknownSegment(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "unknown_segment"
    title = "The job has no such segment"
    hint = "Count from 0, up to the number of segments that the job lists."


class BatchTooLarge(RequestError):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "batch_too_large"
    title = "The batch is too large"
    hint = "Send the videos in several batches."
    operator_hint = "REELWORD_MAX_BATCH_BYTES is the limit."


class TooManyItems(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "too_many_items"
    title = "The batch has too many videos"
    hint = "Send the videos in several batches."


class UnknownBatch(RequestError):
    status = HTTPStatus.NOT_FOUND
    code = "unknown_batch"
    title = "There is no such batch"
    hint = "Check the id; a batch is forgotten with the last of its jobs."
    operator_hint = "REELWORD_RESULT_TTL is how long jobs are kept."


class TooManyBatches(RequestError):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "too_many_batches"
    title = "Too many batches are being received"
    hint = "Send the batch again in some seconds."
    retry_after = 10


class BacklogFull(RequestError):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "backlog_full"
    title = "Too many jobs are waiting"
    hint = "Send the video again later."
    operator_hint = "Start more workers, or raise REELWORD_MAX_BACKLOG."
    retry_after = 30


class NotReady(RequestError):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "not_ready"
    title = "The service cannot run jobs at the moment"
    hint = "Wait some seconds; jobs that are sent meanwhile wait as well."
    operator_hint = "If it lasts, read the worker's log or run reelword doctor."
    retry_after = 5

    def __init__(self, detail: str = "", *, causes: Sequence[Cause] = ()) -> None:
        super().__init__(detail or (causes[0].message if causes else ""))
        self.causes = list(causes) or None
        self.hint = causes[0].hint if causes else self.hint


class HostNotAllowed(RequestError):
    code = "host_not_allowed"
    title = "The service is not known by this name"
    hint = "Ask for the name that you were given for the service; on its own machine for localhost."
    operator_hint = "Add the name to REELWORD_ALLOWED_HOSTS."


class OriginNotAllowed(RequestError):
    status = HTTPStatus.FORBIDDEN
    code = "origin_not_allowed"
    title = "Pages from elsewhere may not write"
    hint = "Use the service's own page."
    operator_hint = "Add the other page to REELWORD_CORS_ORIGINS, or its host to REELWORD_ALLOWED_HOSTS."


class BodyTooLarge(RequestError):
    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    code = "body_too_large"
    title = "The body is too large"
    hint = "Send what the route takes, and videos to POST /caption or POST /batches."


class HeadersTooLarge(RequestError):
    status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    code = "headers_too_large"
    title = "The request's headers are too large"
    hint = "Send fewer and shorter headers, and a shorter address."


class RequestStalled(RequestError):
    status = HTTPStatus.REQUEST_TIMEOUT
    code = "request_stalled"
    title = "The request did not come in time"
    hint = "Send the request again over a connection that holds."


class TooManyConnections(RequestError):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "too_many_connections"
    title = "Too many clients are connected"
    hint = "Send the request again later."
    operator_hint = "Raise REELWORD_MAX_CONNECTIONS."
    retry_after = 5


class TooManyFollowers(RequestError):
    status = HTTPStatus.SERVICE_UNAVAILABLE
    code = "too_many_followers"
    title = "Too many clients follow jobs"
    hint = "Ask for the job itself now and then, or follow it later."
    operator_hint = "Raise REELWORD_MAX_CONNECTIONS: half of them may follow jobs."
    retry_after = 5


class WebhooksOff(RequestError):
    status = HTTPStatus.UNPROCESSABLE_ENTITY
    code = "webhooks_off"
    title = "This server sends no webhooks"
    hint = "Send the video without webhook and follow the job, or ask the operator to switch webhooks on."
    operator_hint = "Set REELWORD_WEBHOOK_SECRETS."


class StorageFull(RequestError):
    status = HTTPStatus.INSUFFICIENT_STORAGE
    code = "storage_full"
    title = "The server has no room for the video"
    hint = "Send the video again later."
    operator_hint = "Free space below REELWORD_DATA."
    retry_after = 60


#: What a route documents that it answers with: what is wrong with a request, or with what workers are to do.
Refusal: TypeAlias = RequestError | OptionsRefused | InvalidCursor
#: What may be wrong with any request that makes jobs.
OF_SUBMISSIONS: tuple[type[Refusal], ...] = (
    MalformedForm,
    MalformedJson,
    UploadStalled,
    NotMultipart,
    OptionInQuery,
    UnknownField,
    InvalidOption,
    CaptionerUnknown,
    EmbeddingMissing,
    InvalidMembers,
    PromptNotTaken,
    OptionNotTaken,
    WebhooksOff,
    BacklogFull,
    StorageFull,
)


def in_units(size: int) -> str:
    """Writes a number of bytes in words: 512 MiB, 64 KiB, 300 bytes."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if size >= one:
            return f"{size / one:.4g} {unit}"
    return f"{size} bytes"


def describe(error: Refusal, path: str) -> Problem:
    """Makes the problem document of an error met while answering ``path``."""
    names = None if isinstance(error, InvalidCursor) else error.known
    document = problem(error.status, error.code, error.title, str(error), error.hint, path, names)
    return document.model_copy(update={"causes": error.causes}) if isinstance(error, NotReady) else document


def describe_job_error(error: QueueError | RecordUnreadable | TooManyJobs, path: str) -> Problem:
    """Makes the problem document of an error of the queue, of a record or of an owner's jobs."""
    title, detail = "Jobs cannot be taken or read", str(error)
    if isinstance(error, RecordUnreadable):
        title = "The job's record cannot be read by this version"
    elif isinstance(error, TooManyJobs):
        title = "The API key has too many jobs at once"
    else:
        detail = error.public
    return problem(error.status, error.code, title, detail, error.hint, path)


def problem(
    status: int, code: str, title: str, detail: str, hint: str, path: str, known: list[str] | None = None
) -> Problem:
    """Makes a problem document.

    Args:
        status: of the answer.
        code: stable name of the kind.
        title: the kind, in words.
        detail: a sentence about this request.
        hint: what to do.
        path: that was asked for.
        known: the accepted values, where they can be listed.
    """
    return Problem(
        type=type_of(code),
        title=title,
        status=int(status),
        detail=detail,
        instance=path,
        code=code,
        hint=hint,
        known=known,
    )


def type_of(code: str) -> str:
    return f"urn:reelword:problem:{code}"


def headers_of(error: Refusal) -> dict[str, str]:
    if not isinstance(error, RequestError):
        return {}
    headers = {"Retry-After": error.retry_after, "WWW-Authenticate": error.challenge}
    challenges = {name: str(value) for name, value in headers.items() if value is not None}
    return {**error.headers, **challenges}


def response(error: RequestError, path: str) -> Response:
    """Answers a request that met this error."""
    body = describe(error, path).model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, error.status, headers_of(error), media_type=MEDIA_TYPE)


def queue_response(error: QueueError, path: str) -> Response:
    """Answers a request that met this error of the queue."""
    body = describe_job_error(error, path).model_dump(mode="json", exclude_none=True)
    return JSONResponse(body, error.status, {"Retry-After": "5"}, media_type=MEDIA_TYPE)


def openapi_responses(*errors: type[Refusal]) -> dict[int | str, dict[str, Any]]:
    """Lists problems as FastAPI's ``responses=`` takes them, so that the documentation names every problem
    of a route.
    """
    by_status: dict[int, list[type[Refusal]]] = {}
    for error in errors:
        by_status.setdefault(int(error.status), []).append(error)
    return {status: _openapi_response(kinds) for status, kinds in by_status.items()}


def openapi_default() -> dict[int | str, dict[str, Any]]:
    """Describes what any route may answer beside the problems of its own."""
    schema = {"$ref": "#/components/schemas/Problem"}
    locks = (KeyMissing, KeyWrong, KeyScopeTooSmall, RateLimited, HostNotAllowed, OriginNotAllowed)
    kinds = (*locks, BodyTooLarge, HeadersTooLarge, RequestStalled, TooManyConnections)
    named = ", ".join(f"`{kind.code}` ({int(kind.status)})" for kind in kinds)
    description = f"Any other problem: {named}, `queue_unavailable` (503), `invalid_request` (422) …"
    return {"default": {"description": description, "content": {MEDIA_TYPE: {"schema": schema}}}}


def _openapi_response(kinds: Sequence[type[Refusal]]) -> dict[str, Any]:
    examples = {
        kind.code: {
            "summary": kind.title,
            "value": describe(kind(), "/caption").model_dump(exclude_none=True),
        }
        for kind in kinds
    }
    schema = {"$ref": "#/components/schemas/Problem"}
    answer: dict[str, Any] = {
        "description": "; ".join(f"`{kind.code}`: {kind.title}" for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": schema, "examples": examples}},
    }
    return answer | (
        {"headers": RETRY_AFTER} if any(getattr(kind, "retry_after", None) for kind in kinds) else {}
    )
