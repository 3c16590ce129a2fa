"""Serves ``/jobs/{id}/video``: the file that was sent, whole or in part, so that a page can play it.

Its type is known by its first bytes, never by what its sender called it: what is no video or picture that is
known here is offered for download as plain bytes.
"""

import re
from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import StreamingResponse

from app.api import problems, refusals
from app.api.dependencies import CallerDep, ServiceDep
from app.api.etags import split_etags
from app.api.routes.jobs import KEEP, IfNoneMatch, JobId, disposition, find
from app.jobs.blobs import BlobMissingError
from app.jobs.job import Job

HEAD_BYTES = 64  #: of a file, that decide its type
UNKNOWN = "application/octet-stream"
#: The type of a file that begins like this.
TYPES_BY_START: Mapping[bytes, str] = {
    b"\x00\x00\x01\xba": "video/mpeg",
    b"\x00\x00\x01\xb3": "video/mpeg",
    b"\x30\x26\xb2\x75": "video/x-ms-wmv",
    b"OggS": "video/ogg",
    b"FLV\x01": "video/x-flv",
    b"GIF8": "image/gif",
    b"\xff\xd8\xff": "image/jpeg",
    b"\x89PNG\r\n\x1a\n": "image/png",
}
#: The type of an ISO media file whose major brand begins like this; that of any other is MP4.
TYPES_BY_BRAND: Mapping[bytes, str] = {
    b"qt": "video/quicktime",
    b"3g2": "video/3gpp2",
    b"3gp": "video/3gpp",
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
    b"msf1": "image/heif",
}
MP4, WEBM, MATROSKA = "video/mp4", "video/webm", "video/x-matroska"
TRANSPORT_STREAM, AVI, WEBP = "video/mp2t", "video/x-msvideo", "image/webp"
TYPES = sorted(
    {*TYPES_BY_START.values(), *TYPES_BY_BRAND.values(), MP4, WEBM, MATROSKA, TRANSPORT_STREAM, AVI, WEBP}
)
#: Of a part that was asked for, what it is a part of.
PART_HEADERS = problems.header("Content-Range", "Which bytes these are, of how many.")

Range = Annotated[
    str | None,
    Header(
        description="One range of bytes (RFC 9110), such as `bytes=0-1023`; several are answered by all.",
        examples=["bytes=0-1023"],
    ),
]
IfRange = Annotated[str | None, Header(description="An `ETag`: `Range` counts for this file alone.")]

router = APIRouter(prefix="/jobs/{job_id}", tags=["jobs"])


@router.get(
    "/video",
    response_class=Response,
    responses={
        200: {"content": {each: {} for each in (*TYPES, UNKNOWN)}, "description": "The file."},
        206: {
            "content": {each: {} for each in (*TYPES, UNKNOWN)},
            "description": "The part that `Range` asks for.",
            "headers": PART_HEADERS,
        },
        304: {"description": "It is the file that `If-None-Match` names."},
        **problems.openapi_responses(refusals.UnknownJob, refusals.VideoNotKept, refusals.RangeNotSatisfied),
    },
)
def get_video(
    job_id: JobId,
    request: Request,
    service: ServiceDep,
    caller: CallerDep,
    range: Range = None,  # noqa: A002 - the header's name
    if_range: IfRange = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Sends the file of the job, while it is kept: until it is captioned, and then as long as the server
    keeps uploads.
    """
    job = find(service, job_id, caller)
    if job.state in ("canceled", "expired"):
        raise refusals.VideoNotKept(_why_there_is_none(job))
    try:
        size = service.blobs.size(job.upload)
        kind = media_type(next(service.blobs.pieces(job.upload, 0, HEAD_BYTES), b""))
    except BlobMissingError as error:
        raise refusals.VideoNotKept(_why_there_is_none(job)) from error
    tag = f'"{job.id}"'
    header = range if if_range in (None, tag) else None
    part = requested_part(header, size)
    headers = {
        **KEEP,
        "Accept-Ranges": "bytes",
        "Content-Disposition": disposition(job.filename, is_shown=kind != UNKNOWN),
        "Content-Type": kind,
        "ETag": tag,
        **_extent(part, size),
    }
    if {tag, "*"} & set(split_etags(if_none_match)):
        return Response(None, 304, {name: headers[name] for name in ("Cache-Control", "ETag")})
    status = 200 if part is None else 206
    if request.scope.get("without_body"):
        return Response(status_code=status, headers=headers)
    first, end = (0, size) if part is None else (part.start, part.stop)
    pieces = service.blobs.pieces(job.upload, first, end)
    return StreamingResponse(pieces, status_code=status, headers=headers)


def media_type(head: bytes) -> str:
    """Returns the type of a file by its first bytes; UNKNOWN where they are none of a known kind."""
    if head[4:8] == b"ftyp":
        brand = head[8:12]
        return next((kind for start, kind in TYPES_BY_BRAND.items() if brand.startswith(start)), MP4)
    if head[4:8] in (b"moov", b"mdat", b"wide", b"free", b"skip"):  # QuickTime of before there were brands
        return TYPES_BY_BRAND[b"qt"]
    if head.startswith(b"\x1aE\xdf\xa3"):
        return WEBM if b"webm" in head else MATROSKA
    if head.startswith(b"RIFF"):
        return {b"AVI ": AVI, b"WEBP": WEBP}.get(head[8:12], UNKNOWN)
    if head.startswith(b"G") and not head.startswith(b"GIF8"):
        return TRANSPORT_STREAM
    return next((kind for start, kind in TYPES_BY_START.items() if head.startswith(start)), UNKNOWN)


def requested_part(header: str | None, size: int) -> range | None:
    """Reads a Range header (RFC 9110) for a file of ``size`` bytes.

    None is all of the file: one that cannot be read or asks for several parts is passed over, as the RFC
    allows. Raises RangeNotSatisfied where the file has none of the bytes.
    """
    match = re.fullmatch(r"\s*bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})\s*", header or "", re.IGNORECASE)
    if match is None or not (match[1] or match[2]):
        return None
    if not match[1]:  # the last so many bytes
        part = range(max(0, size - int(match[2])), size)
    else:
        if match[2] and int(match[2]) < int(match[1]):
            return None
        part = range(int(match[1]), min(int(match[2]) + 1, size) if match[2] else size)
    if part.start >= size:
        headers = {"Content-Range": f"bytes */{size}"}
        raise refusals.RangeNotSatisfied(f"The file has {size:,} bytes.", headers=headers)
    return part


def _extent(part: range | None, size: int) -> dict[str, str]:
    if part is None:
        return {"Content-Length": str(size)}
    return {"Content-Length": str(len(part)), "Content-Range": f"bytes {part.start}-{part.stop - 1}/{size}"}


def _why_there_is_none(job: Job) -> str:
    return f"The job's file {'is not kept any more' if job.is_over else 'has not been fetched yet'}."
