"""Reads the body of a request for a caption, of whichever kind: a form, a video as it is, or JSON with a url.

multipart/form-data                            video or url, and fields
video/*, image/*, application/octet-stream     the video; fields in the query
application/json                               url and fields

A form is read as it arrives: the video to disk, the options to memory, nothing else anywhere. How it is taken
apart is in form.py; here is where its parts go.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from python_multipart.multipart import parse_options_header
from starlette.datastructures import QueryParams

from app.api import refusals
from app.api.receiving.fields import REQUEST_FIELDS, VIDEO_FIELDS, read_request
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of
from app.api.receiving.option_body import FORM, JSON, FormFields, check_names, read_json
from app.api.receiving.upload import (
    FORM_OVERHEAD,
    STALL_SECONDS,
    Room,
    Upload,
    VideoSink,
    displayable,
    in_pieces,
    opened,
    unstalled,
)

FORM_NAMES = ("video", *REQUEST_FIELDS)
RAW = ("application/octet-stream",)
PLAIN_CODINGS = {"", "identity", "chunked"}  #: of content and transfer, that leave bytes as they are
RAW_KINDS = ("video/", "image/")
#: The parameter ``filename*``: its character set and its escaped value (RFC 6266 4.3, RFC 8187).
EXTENDED_NAME = re.compile(r"filename\*\s*=\s*\"?(utf-8|iso-8859-1)'[^']*'([^\";\s]*)", re.IGNORECASE)


class CaptionForm:
    """Takes the parts of ``POST /caption``: wrong fields are refused when the video begins, all at once."""

    def __init__(self, video: VideoSink) -> None:
        self.video = video
        self.filename: str | None = None  # None: there was no video yet
        self._fields = FormFields(REQUEST_FIELDS, FORM_NAMES, takes_all=True)

    @property
    def fields(self) -> dict[str, str]:
        return self._fields.values

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises leaves of RequestError for one that is not wanted, or not again."""
        return self._open_video(part) if part.name == "video" else self._fields.open_part(part)

    def _open_video(self, part: FormPart) -> Sink:
        if self.filename is not None:
            raise refusals.SeveralVideos("The form has more than one field called video.")
        if part.filename is None:  # curl's -F video=clip.mp4, its @ forgotten, sends the name as text
            raise refusals.VideoMissing("The field video holds text, not a file.")
        self._check_names()  # what is wrong is answered before the video is read
        self.filename = part.filename
        return self.video

    def _check_names(self) -> None:
        """Raises UnknownField, with all else that is wrong, where there is a field of another name."""
        if not self.fields.keys() <= set(REQUEST_FIELDS):
            read_request(self.fields, listed=FORM_NAMES)

    def check(self) -> None:
        """Checks a form that has been read to its end. Raises VideoMissing, SeveralVideos, VideoEmpty."""
        self._check_names()
        brought = [name for name in VIDEO_FIELDS if self.fields.get(name)]
        if self.filename is not None:
            brought.insert(0, "video")
        _check_one(brought, "form")
        if self.filename is not None and self.video.size == 0:
            raise refusals.VideoEmpty("The video has no bytes.")


def kind_of(headers: Mapping[str, str]) -> str:
    """Reads a body's kind: ``FORM``, ``JSON`` or a video's. Raises NotMultipart where it is not taken."""
    codings = ",".join(headers.get(name, "") for name in ("content-encoding", "transfer-encoding"))
    if coded := {coding.strip().lower() for coding in codings.split(",")} - PLAIN_CODINGS:
        raise refusals.NotMultipart(f"The body is compressed ({min(coded)[:64]}).")
    content_type = headers.get("content-type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in (FORM, JSON, *RAW) or kind.startswith(RAW_KINDS):
        return kind
    fault = f"The content type is {content_type[:100] or 'none'}"
    raise refusals.NotMultipart(f"{fault}, and neither a form's nor a video's nor that of JSON.")


async def receive_body(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    query: QueryParams,
    file: Path,
    max_video_bytes: int,
    room: Room,
    stall_seconds: float = STALL_SECONDS,
) -> Upload:
    """Reads a whole body; its video, if it has one, is in ``file`` and flushed to disk when this returns.

    Args:
        body: the request's bytes as they arrive.
        query: of the address: fields, where the body is the video alone.
        file: takes the video; it is removed where the body is refused.
        room: of the disk, and what must stay free of it.
        stall_seconds: how long the client may send next to nothing.

    Raises:
        RequestError: one of its leaves, where the body is refused.
        Exception: whatever ``body`` raises (the client went away).
    """
    kind = kind_of(headers)
    if kind in (FORM, JSON):
        refuse_query(query)
    if kind == JSON:
        values = await read_json(body)
        _check_one([name for name in VIDEO_FIELDS if values.get(name) is not None], "JSON")
        return Upload(None, 0, values, is_json=True)
    pieces = unstalled(body, stall_seconds)
    if kind == FORM:
        return await _receive_form(pieces, headers, file, max_video_bytes, room)
    fields, filename = _query_fields(query)
    read_request(fields)  # what is wrong there is answered before the video is read
    async with opened(file, headers, max_video_bytes, room) as video:
        await in_pieces(pieces, video.write)
        if video.size == 0:
            raise refusals.VideoEmpty("The body has no bytes.")
    return Upload(file, video.size, fields, displayable(filename or _filename_in(headers)), video.sha256)


async def _receive_form(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    file: Path,
    max_video_bytes: int,
    room: Room,
) -> Upload:
    boundary = boundary_of(headers.get("content-type"))
    async with opened(file, headers, max_video_bytes, room, FORM_OVERHEAD) as video:
        parts = CaptionForm(video)
        form = MultipartForm(boundary, parts.open_part)
        # preamble, headers, options and epilogue together are small in any real form
        await form.read(body, lambda: video.size, FORM_OVERHEAD)
        if parts.filename is not None and not video.is_complete:
            raise refusals.MalformedForm("The form ends in the middle of the video.")
        form.finish()
        parts.check()
    if parts.filename is None:
        return Upload(None, 0, parts.fields)
    return Upload(file, video.size, parts.fields, displayable(parts.filename), video.sha256)


def _check_one(brought: Sequence[str], body: str) -> None:
    """Raises VideoMissing or SeveralVideos where not one field alone brings a video."""
    if not brought:
        raise refusals.VideoMissing(f"The {body} has no video, url or file.")
    if len(brought) > 1:
        raise refusals.SeveralVideos(f"The {body} has {' and '.join(brought)}, of which one is enough.")


def refuse_query(query: QueryParams) -> None:
    """Raises OptionInQuery: an option that is not read must not be passed over."""
    if query:
        names = ", ".join(dict.fromkeys(query))
        raise refusals.OptionInQuery(f"The address has {names[:100]} behind its question mark.")


def _query_fields(query: QueryParams) -> tuple[dict[str, str], str]:
    """Reads fields and the file's name. Raises InvalidOption, SeveralVideos."""
    names, fields = [name for name, _ in query.multi_items()], dict(query)
    check_names(names, names)  # read_request says which is not known
    _check_one(["video", *(name for name in VIDEO_FIELDS if name in fields)], "request")
    filename = fields.pop("filename", "")
    return fields, filename


def _filename_in(headers: Mapping[str, str]) -> str:
    """Reads the name in Content-Disposition; ``filename*``, where there is one, before ``filename``."""
    value = headers.get("content-disposition") or ""
    if extended := EXTENDED_NAME.search(value):
        return unquote(extended[2], extended[1])
    _, options = parse_options_header(value)
    return options.get(b"filename", b"").decode("utf-8", "replace")
