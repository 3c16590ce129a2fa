"""Reads the body of a request for a caption, of whichever kind: a form, a video as it is, or JSON with a url.

multipart/form-data                            video or url, and fields         app/api/receiving/upload.py
video/*, image/*, application/octet-stream     the video; fields in the query
application/json                               url and fields
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import anyio.to_thread
import pydantic_core
from python_multipart.multipart import parse_options_header
from starlette.datastructures import QueryParams

from app.api import problems
from app.api.receiving.disk_space import Room
from app.api.receiving.fields import read_request
from app.api.receiving.upload import (
    FORM_OVERHEAD,
    STALL_SECONDS,
    Upload,
    VideoSink,
    displayable,
    flush,
    in_pieces,
    opened,
    receive,
    refuse_by_header,
    unstalled,
)

FORM, JSON = "multipart/form-data", "application/json"
RAW = ("application/octet-stream",)
RAW_KINDS = ("video/", "image/")


def kind_of(headers: Mapping[str, str]) -> str:
    """Reads the kind of a body from its content type: ``FORM``, ``JSON`` or, of a video, any other.

    Raises NotMultipart for one that is not taken.
    """
    content_type = headers.get("content-type") or ""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in (FORM, JSON, *RAW) or kind.startswith(RAW_KINDS):
        return kind
    said = f"The content type is {content_type[:100] or 'none'}"
    raise problems.NotMultipart(f"{said}, and neither a form's nor a video's nor that of JSON.")


async def receive_body(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    query: QueryParams,
    file: Path,
    max_video_bytes: int,
    room: Room | None = None,
) -> Upload:
    """Reads a whole body; its video, if it has one, is in ``file`` and flushed to disk when this returns.

    Args:
        body: the request's bytes as they arrive.
        headers: the request's.
        query: what stands behind the address: fields, where the body is the video alone.
        file: takes the video; it is removed where the body is refused.
        max_video_bytes: most bytes of the video.
        room: of the disk, and what must stay free of it; by default nothing.

    Raises:
        RequestError: one of its leaves, where the body is refused.
        Exception: whatever ``body`` raises (the client went away).
    """
    kind = kind_of(headers)
    if kind in (FORM, JSON):
        refuse_query(query)
    if kind == FORM:
        return await receive(body, headers, file, max_video_bytes, room=room)
    if kind == JSON:
        return await receive_json(body)
    return await _receive_raw(body, headers, query, file, max_video_bytes, room)


def refuse_query(query: QueryParams) -> None:
    """Raises OptionInQuery: an option that is not read must not be passed over."""
    if query:
        names = ", ".join(dict.fromkeys(query))
        raise problems.OptionInQuery(f"The address has {names[:100]} behind its question mark.")


async def receive_json(body: AsyncIterator[bytes]) -> Upload:
    """Reads a JSON object of fields. Raises MalformedJson; VideoMissing where it has no url."""
    fields = await read_json(body)
    if fields.get("url") is None:
        raise problems.VideoMissing("The JSON has no member url.")
    return Upload(None, 0, fields, is_json=True)


async def read_json(body: AsyncIterator[bytes], most_bytes: int = FORM_OVERHEAD) -> dict[str, Any]:
    """Reads a body that is one JSON object of at most so many bytes. Raises MalformedJson."""
    text = bytearray()
    async for chunk in unstalled(body, STALL_SECONDS):
        text += chunk
        if len(text) > most_bytes:
            raise problems.MalformedJson(f"The body has more than {most_bytes:,} bytes.")
    try:
        found = pydantic_core.from_json(bytes(text), allow_inf_nan=False)
        json.dumps(found, allow_nan=False)  # 1e400 is read as infinity
    except ValueError as error:
        raise problems.MalformedJson(f"The body is no JSON: {str(error)[:100]}.") from error
    if not isinstance(found, dict):
        raise problems.MalformedJson("The body is JSON, but no object.")
    return found


async def _receive_raw(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    query: QueryParams,
    file: Path,
    max_video_bytes: int,
    room: Room | None,
) -> Upload:
    fields, filename = _query_fields(query)
    read_request(fields)  # what is wrong there is said before the video is read
    filename = filename or _filename_in(headers)
    refuse_by_header(headers, max_video_bytes)
    async with opened(file, headers, room) as output:
        video = VideoSink(output, max_video_bytes)
        await in_pieces(unstalled(body, STALL_SECONDS), video.write)
        if video.size == 0:
            raise problems.VideoEmpty("The body has no bytes.")
        await anyio.to_thread.run_sync(flush, output)
    return Upload(file, video.size, fields, displayable(filename), video.sha256)


def _query_fields(query: QueryParams) -> tuple[dict[str, str], str]:
    """Reads fields and the file's name. Raises InvalidOption, SeveralVideos."""
    fields = dict(query)
    if twice := next((name for name in fields if len(query.getlist(name)) > 1), None):
        raise problems.InvalidOption(f"{twice[:64]} is given more than once.")
    if "url" in fields:
        raise problems.SeveralVideos("The body is a video, and the address has a url as well.")
    filename = fields.pop("filename", "")
    return fields, filename


def _filename_in(headers: Mapping[str, str]) -> str:
    _, options = parse_options_header(headers.get("content-disposition") or "")
    return options.get(b"filename", b"").decode("utf-8", "replace")
