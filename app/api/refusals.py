"""Names what can be wrong with a request.

Each class has a stable code, the status of its answer, and what the sender can do about it;
app/api/problems.py writes it as a problem document.

Errors of the queue, of records and of options that no worker takes are in app/errors.py.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from app import errors
from app.operations.service_health import Trouble


class RequestError(errors.ServiceError, code="request_error", status=400):
    """Base of what may be wrong with a request. ``str(error)`` is one sentence about this one."""

    title = "The request cannot be served"
    headers: Mapping[str, str] = MappingProxyType({})  #: of its answer, beside those of any

    def __init__(
        self,
        detail: str = "",
        *,
        known: Sequence[str] | None = None,
        retry_after: int | None = None,
        field: str = "",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail, known)
        self.retry_after = self.retry_after if retry_after is None else retry_after
        self.headers = self.headers if headers is None else headers
        self.mistakes: Sequence[RequestError] = ()  # of a request with wrong fields: all, itself the first
        self.field = field  # the one that is wrong; empty where it is none


class NotMultipart(RequestError, code="not_multipart", status=415):
    title = "The body is of a kind that is not taken"
    hint = (
        "Send the file as it is, as the form field video: curl -F video=@clip.mp4 …, or as the body with its "
        "content type: -H 'Content-Type: video/mp4' --data-binary @clip.mp4."
    )


class MalformedForm(RequestError, code="malformed_form"):
    title = "The form cannot be read"
    hint = "Send the form again; if it happens again, the client builds its multipart body wrongly."


class MalformedJson(RequestError, code="malformed_json"):
    title = "The JSON cannot be read"
    hint = 'Send one object of at most 64 KiB in UTF-8: {"url": "https://…", "beam_size": 8}.'


class UploadTooLarge(RequestError, code="upload_too_large", status=413):
    title = "The upload is too large"
    hint = "Send a shorter or smaller video."
    operator_hint = "REELWORD_MAX_UPLOAD_BYTES is the limit of all, a key's max-upload that of its own."


class UploadStalled(RequestError, code="upload_stalled", status=408):
    title = "The upload stood still for too long"
    hint = "Send the request again over a connection that holds."


class VideoMissing(RequestError, code="video_missing", status=422):
    title = "The request has no video"
    hint = "Send the file as the form field video: curl -F video=@clip.mp4 …, or its address as url."


class VideoEmpty(RequestError, code="video_empty", status=422):
    title = "The video has no bytes"
    hint = "Check that the file is complete on your side and send it again."


class SeveralVideos(RequestError, code="several_videos", status=422):
    title = "The request has more than one video"
    hint = "Send one request for each video."


class UrlNotSupported(RequestError, code="url_not_supported", status=422):
    title = "This server does not fetch videos"
    hint = "Fetch the file yourself and send that."


class OptionInQuery(RequestError, code="option_in_query", status=422):
    title = "Options stand in the address"
    hint = (
        "Send options as fields of the form: curl -F video=@clip.mp4 -F beam_size=8 …; behind the address "
        "they belong where the body is the video alone."
    )


class UnknownField(RequestError, code="unknown_field", status=422):
    title = "The request has a field that is not known"
    hint = "Use the fields that GET /docs lists for the route."

    def __init__(self, detail: str = "", *, known: Sequence[str] = (), field: str = "") -> None:
        super().__init__(detail, known=known or None, field=field)
        self.hint = f"The fields are: {', '.join(known)}." if known else self.hint


class InvalidOption(RequestError, code="invalid_option", status=422):
    title = "An option has a value that is not accepted"
    hint = "Correct the option or leave it out to get its default."


class InvalidRequest(RequestError, code="invalid_request", status=422):
    title = "A part of the request has a value that is not accepted"
    hint = "GET /docs lists what each route takes."


class KeyMissing(RequestError, code="key_missing", status=401):
    title = "The service needs an API key"
    hint = (
        "Send Authorization: Bearer and your key; at the page, enter it. The service's operator gives keys."
    )
    operator_hint = "Make one with reelword keys add NAME."
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="reelword"'})


class KeyWrong(RequestError, code="key_wrong", status=401):
    title = "The API key opens nothing"
    hint = "Check that the key is whole; if it is, it was revoked or has expired: ask for a new one."
    operator_hint = "See reelword keys list."
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="reelword", error="invalid_token"'})


class KeyScopeTooSmall(RequestError, code="key_scope", status=403):
    title = "The API key may not do this"
    hint = "Use a key that may: reading needs the scope read, writing write, the service's numbers admin."
    operator_hint = "Make one with reelword keys add NAME --scope write, or --high."
    headers = MappingProxyType({"WWW-Authenticate": 'Bearer realm="reelword", error="insufficient_scope"'})


class RateLimited(RequestError, code="rate_limited", status=429):
    title = "The API key has sent too many requests"
    hint = "Wait as long as Retry-After says, and send fewer at a time."
    operator_hint = "Keys have their rates from reelword keys add."


class IdempotencyMismatch(RequestError, code="idempotency_mismatch", status=422):
    title = "The idempotency key belongs to another request"
    hint = "Send each new request with a key of its own; repeat one with the same video and fields."


class IdempotencyInProgress(RequestError, code="idempotency_in_progress", status=409):
    title = "The first request with this idempotency key is still being received"
    hint = "Send the request again after Retry-After seconds; it is answered with the first one's job."
    retry_after = 1


class UnknownJob(RequestError, code="unknown_job", status=404):
    title = "There is no such job"
    hint = "Check the id; jobs are forgotten some time after they have ended."
    operator_hint = "REELWORD_RESULT_TTL is how long."


class UnknownFile(RequestError, code="unknown_file", status=404):
    title = "There is no such file"
    hint = "Check the id; a file is gone once a job has taken it, and a day after its last byte."


class FileIncomplete(RequestError, code="file_incomplete", status=409):
    title = "The file has not come whole"
    hint = "Send the rest of it: HEAD of its address says how much has come."


class WrongOffset(RequestError, code="wrong_offset", status=409):
    title = "The bytes do not follow those that have come"
    hint = "Ask with HEAD how many bytes have come, and go on from there."
    retry_after = 1


class NotTus(RequestError, code="not_tus", status=412):
    title = "The service speaks version 1.0.0 of tus"
    hint = "Use a client of tus 1.0."
    headers = MappingProxyType({"Tus-Version": "1.0.0"})


class TooManyFiles(RequestError, code="too_many_files", status=429):
    title = "Too many files wait for their jobs"
    hint = "Caption or delete some of them, or wait: what no job takes goes a day after its last byte."


class UnknownFrame(RequestError, code="unknown_frame", status=404):
    title = "The job has no such frame"
    hint = "Frames are counted from 0; the job's sampled member has one time for each."


class JobNotFinished(RequestError, code="job_not_finished", status=409):
    title = "The job has not finished"
    hint = "Ask for the job until its state is succeeded, then for its attention or its captions."
    retry_after = 1


class JobHasNoAttention(RequestError, code="no_attention", status=404):
    title = "The job has no attention"
    hint = "Attention comes with a caption, unless the video was sent with attention=false."


class JobHasNoCaptions(RequestError, code="no_captions", status=404):
    title = "The job has no captions"
    hint = "Look at the job's error, then send the video again."


class VideoNotKept(RequestError, code="video_not_kept", status=404):
    title = "The job's video is not kept"
    hint = "Play your own copy; urls.video in the job says whether there is one here."


class RangeNotSatisfied(RequestError, code="range_not_satisfied", status=416):
    title = "The file does not have the bytes that Range asks for"
    hint = "Ask for bytes that it has, or without Range for all of it."


class UploadGone(RequestError, code="upload_gone", status=409):
    title = "The job's video is not kept, so it cannot be captioned again"
    hint = "Send the video again with POST /caption."


class UnknownSegment(RequestError, code="unknown_segment", status=404):
    title = "The job has no such segment"
    hint = "Count from 0, up to the number of segments that the job lists."


class BatchTooLarge(RequestError, code="batch_too_large", status=413):
    title = "The batch is too large"
    hint = "Send the videos in several batches."
    operator_hint = "REELWORD_MAX_BATCH_BYTES is the limit."


class TooManyItems(RequestError, code="too_many_items", status=422):
    title = "The batch has too many videos"
    hint = "Send the videos in several batches."


class UnknownBatch(RequestError, code="unknown_batch", status=404):
    title = "There is no such batch"
    hint = "Check the id; a batch is forgotten with the last of its jobs."
    operator_hint = "REELWORD_RESULT_TTL is how long jobs are kept."


class TooManyBatches(RequestError, code="too_many_batches", status=503):
    title = "Too many batches are being received"
    hint = "Send the batch again in some seconds."
    retry_after = 10


class BacklogFull(RequestError, code="backlog_full", status=503):
    title = "Too many jobs are waiting"
    hint = "Send the video again later."
    operator_hint = "Start more workers, or raise REELWORD_MAX_BACKLOG."
    retry_after = 30


class NotReady(RequestError, code="not_ready", status=503):
    title = "The service cannot run jobs at the moment"
    hint = "Wait some seconds; jobs that are sent meanwhile wait as well."
    operator_hint = "If it lasts, read the worker's log or run reelword doctor."
    retry_after = 5

    def __init__(self, detail: str = "", *, causes: Sequence[Trouble] = ()) -> None:
        super().__init__(detail or (causes[0].message if causes else ""))
        self.causes = causes  #: all that is wrong with the service
        self.hint = causes[0].hint if causes else self.hint


class HostNotAllowed(RequestError, code="host_not_allowed"):
    title = "The service is not known by this name"
    hint = "Ask for the name that you were given for the service; on its own machine for localhost."
    operator_hint = "Add the name to REELWORD_ALLOWED_HOSTS."


class ProxyNotNamed(RequestError, code="proxy_not_named", status=403):
    title = "The service asks for no key, and the request came through a proxy that no setting names"
    hint = "Ask the service's operator to name the proxy in its settings, which then asks for keys."
    operator_hint = (
        "Set REELWORD_TRUSTED_PROXIES to the proxy's address, as 127.0.0.1: keys are then asked for. "
        "REELWORD_ACCESS=open serves all who reach it without one."
    )


class OriginNotAllowed(RequestError, code="origin_not_allowed", status=403):
    title = "Pages from elsewhere may not write"
    hint = "Use the service's own page."
    operator_hint = "Add the other page to REELWORD_CORS_ORIGINS, or its host to REELWORD_ALLOWED_HOSTS."


class BodyTooLarge(RequestError, code="body_too_large", status=413):
    """Of a request that brings no video."""

    title = "The body is too large"
    hint = "Send what the route takes, and videos to POST /caption or POST /batches."


class HeadersTooLarge(RequestError, code="headers_too_large", status=431):
    title = "The request's headers are too large"
    hint = "Send fewer and shorter headers, and a shorter address."


class RequestStalled(RequestError, code="request_stalled", status=408):
    title = "The request did not come in time"
    hint = "Send the request again over a connection that holds."


class RequestCutOff(RequestError, code="request_cut_off"):
    title = "The request ended before its body was complete"
    hint = "Send all of it; Content-Length says how many bytes the body has."


class TooManyConnections(RequestError, code="too_many_connections", status=503):
    title = "Too many clients are connected"
    hint = "Send the request again later."
    operator_hint = "Raise REELWORD_MAX_CONNECTIONS."
    retry_after = 5


class TooManyFollowers(RequestError, code="too_many_followers", status=503):
    title = "Too many clients follow jobs"
    hint = "Ask for the job itself now and then, or follow it later."
    operator_hint = "Raise REELWORD_MAX_CONNECTIONS: half of them may follow jobs."
    retry_after = 5


class KeyFollowsEnough(RequestError, code="key_follows_enough", status=429):
    title = "The key follows or waits for as many jobs as it may at once"
    hint = "End one of these requests, or ask for the jobs now and then."
    operator_hint = "Raise REELWORD_MAX_FOLLOWED."
    retry_after = 5


class WebhooksOff(RequestError, code="webhooks_off", status=422):
    title = "This server sends no webhooks"
    hint = "Send the video without webhook and follow the job, or ask the operator to switch webhooks on."
    operator_hint = "Set REELWORD_WEBHOOK_SECRETS."


class SearchUnanswered(RequestError, code="search_unanswered", status=503):
    title = "No worker has answered the search"
    hint = "Search again in a moment: workers answer between the videos that they caption."
    operator_hint = "Look whether a worker runs (reelword workers)."
    retry_after = 5


class ClipKindMissing(RequestError, code="clip_kind_missing", status=501):
    title = "The server writes no clips of this kind"
    hint = "Ask for clip.webp or clip.gif."
    operator_hint = "MP4 needs PyAV beside the API: pip install av."


class StorageFull(RequestError, code="storage_full", status=507):
    title = "The server has no room for the video"
    hint = "Send the video again later."
    operator_hint = "Free space below REELWORD_DATA."
    retry_after = 60


class InternalError(RequestError, code="internal_error", status=500):
    """The request is not at fault: the server met an error that it did not expect."""

    title = "The server has a fault"
    hint = "The server's log has the details; report it with them."


#: What may be wrong with any request, whichever its route.
OF_ANY_REQUEST: tuple[type[errors.ServiceError], ...] = (
    KeyMissing,
    KeyWrong,
    KeyScopeTooSmall,
    RateLimited,
    HostNotAllowed,
    ProxyNotNamed,
    OriginNotAllowed,
    BodyTooLarge,
    HeadersTooLarge,
    RequestStalled,
    RequestCutOff,
    TooManyConnections,
    InvalidRequest,
    InternalError,
)
#: What may be wrong with any request that makes jobs.
OF_SUBMISSIONS: tuple[type[errors.ServiceError], ...] = (
    MalformedForm,
    MalformedJson,
    UploadStalled,
    NotMultipart,
    OptionInQuery,
    UnknownField,
    InvalidOption,
    errors.CaptionerUnknown,
    errors.EmbeddingMissing,
    errors.InvalidMembers,
    errors.PromptNotTaken,
    errors.OptionNotTaken,
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
