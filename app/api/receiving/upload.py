"""Reads a multipart form as it arrives: the video to disk, the options to memory, nothing else anywhere.

The parser is given bounded pieces, so that memory stays flat; the size limit ends the reading at the
first byte too many; whatever goes wrong, the half-written file is gone before the error leaves here.
How a form is taken apart is in form.py; here is where its parts go.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import anyio
import anyio.to_thread

from app.api import problems
from app.api.receiving.disk_space import Room, announced_bytes
from app.api.receiving.fields import FIELD_LIMIT, LARGER_FIELDS, REQUEST_FIELDS
from app.api.receiving.form import FormPart, MultipartForm, Sink, boundary_of

FORM_OVERHEAD = 64 * 1024  #: bytes of a body that are not the video: options, boundaries, part headers
STALL_SECONDS = 20.0  #: a client that sends fewer than PACE bytes in this time is given up
PACE = 16 * 1024
PIECE = 1024 * 1024  #: bytes handed to the parser (and to the disk) at a time
FORM_NAMES = ("video", *REQUEST_FIELDS)
FILENAME_LENGTH = 255  #: characters kept of a file's name
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  #: of Persian words and of emoji


@dataclass(frozen=True)
class Upload:
    """Holds what a request has brought.

    file: holds the video, ``size`` bytes of this sha256, on disk; None where ``fields`` have a url instead.
    fields: as sent, texts or, where is_json, values. filename: the video's on its sender's disk, fit for
    display.
    """

    file: Path | None
    size: int
    fields: Mapping[str, Any]
    filename: str = ""
    sha256: str | None = None
    is_json: bool = False


class VideoSink:
    """Writes a video to ``output``, at most ``limit`` bytes, and digests it on the way."""

    def __init__(self, output: BinaryIO, limit: int) -> None:
        self._output, self._limit = output, limit
        self._digest = hashlib.sha256()
        self.size = 0
        self.is_complete = False

    @property
    def sha256(self) -> str:
        """The digest of what has come so far, in hexadecimal digits."""
        return self._digest.hexdigest()

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self.size > self._limit:
            raise too_large(self._limit)
        self._output.write(data)
        self._digest.update(data)

    def close(self) -> None:
        self.is_complete = True


class OptionSink:
    """Keeps the value of one field."""

    def __init__(self, name: str) -> None:
        self._name, self._limit = name, LARGER_FIELDS.get(name, FIELD_LIMIT)
        self._bytes = bytearray()

    def write(self, data: bytes) -> None:
        self._bytes += data
        if len(self._bytes) > self._limit:
            raise problems.InvalidOption(f"{self._name} is longer than {problems.in_units(self._limit)}.")

    def close(self) -> None:
        pass

    @property
    def value(self) -> str:
        return self._bytes.decode("utf-8", "replace").strip()


class CaptionForm:
    """Takes the parts of ``POST /caption``: a wrong one is refused as soon as its headers are read."""

    def __init__(self, video: VideoSink) -> None:
        self.video = video
        self.filename: str | None = None  # None: there was no video yet
        self._options: dict[str, OptionSink] = {}

    @property
    def fields(self) -> dict[str, str]:
        return {name: self._options[name].value for name in REQUEST_FIELDS if name in self._options}

    def open_part(self, part: FormPart) -> Sink:
        """Begins a part. Raises leaves of RequestError for one that is not wanted, or not again."""
        if part.name == "video":
            return self._open_video(part)
        if part.name not in REQUEST_FIELDS:
            raise problems.UnknownField(f"The form has a field called {part.name[:64]}.", known=FORM_NAMES)
        if part.name in self._options:
            raise problems.InvalidOption(f"{part.name} is given more than once.")
        return self._options.setdefault(part.name, OptionSink(part.name))

    def _open_video(self, part: FormPart) -> Sink:
        if self.filename is not None:
            raise problems.SeveralVideos("The form has more than one field called video.")
        if part.filename is None:  # curl's -F video=clip.mp4, its @ forgotten, sends the name as text
            raise problems.VideoMissing("The field video holds text, not a file.")
        self.filename = part.filename
        return self.video

    def check(self) -> None:
        """Checks a form that has been read to its end. Raises VideoMissing, SeveralVideos, VideoEmpty."""
        has_url = bool(self.fields.get("url"))
        if self.filename is None and not has_url:
            raise problems.VideoMissing("The form has no field called video, and none called url.")
        if self.filename is not None and has_url:
            raise problems.SeveralVideos("The form has a file in the field video, and a url.")
        if self.filename is not None and self.video.size == 0:
            raise problems.VideoEmpty("The file in the field video has no bytes.")


def displayable(filename: str) -> str:
    """Cleans a sender's file name: without its folders and without what a terminal or a page could trip
    over.
    """
    name = re.split(r"[/\\]", filename)[-1].strip()
    return "".join(_displayable_letter(letter) for letter in name[:FILENAME_LENGTH])


def _displayable_letter(letter: str) -> str:
    if unicodedata.category(letter) == "Zs":  # macOS puts a narrow no-break space into its recordings' names
        return " "
    return letter if letter.isprintable() or letter in JOINERS else "\N{REPLACEMENT CHARACTER}"


async def receive(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    file: Path,
    max_video_bytes: int,
    stall_seconds: float = STALL_SECONDS,
    room: Room | None = None,
) -> Upload:
    """Reads a whole form; the video is in ``file`` and flushed to disk when this returns.

    Args:
        body: the request's bytes as they arrive.
        headers: the request's.
        file: takes the video; it is removed where the form is refused.
        max_video_bytes: most bytes of the video.
        stall_seconds: how long the client may send next to nothing.
        room: of the disk, and what must stay free of it; by default nothing.

    Raises:
        RequestError: one of its leaves, where the form is refused.
        Exception: whatever ``body`` raises (the client went away).
    """
    boundary = boundary_of(headers.get("content-type"))
    refuse_by_header(headers, max_video_bytes, FORM_OVERHEAD)
    async with opened(file, headers, room) as output:
        return await _receive(unstalled(body, stall_seconds), boundary, file, output, max_video_bytes)


@asynccontextmanager
async def opened(file: Path, headers: Mapping[str, str], room: Room | None = None) -> AsyncIterator[BinaryIO]:
    """Opens a file for a request's video; it is removed again where anything goes wrong.

    Args:
        file: takes the video.
        headers: the request's, which may announce how much comes.
        room: of the disk; by default there is enough.

    Raises:
        StorageFull: the disk is.
    """
    try:
        room = room or Room(file.parent, min_free=0)
        with await anyio.to_thread.run_sync(room.open, file, announced_bytes(headers)) as output:
            yield output
    except OSError as error:
        file.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise problems.StorageFull from error
        raise
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def too_large(limit: int) -> problems.UploadTooLarge:
    return problems.UploadTooLarge(
        f"The video is larger than {problems.in_units(limit)}, the most that is taken."
    )


def refuse_by_header(headers: Mapping[str, str], max_video_bytes: int, overhead: int = 0) -> None:
    """Says 413 before a byte is read where the client announced too many.

    Args:
        headers: the request's.
        max_video_bytes: most bytes of the video.
        overhead: bytes that the body may have beside it.
    """
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_video_bytes + overhead:
        raise too_large(max_video_bytes)


async def _receive(
    body: AsyncIterator[bytes], boundary: bytes, file: Path, output: BinaryIO, max_video_bytes: int
) -> Upload:
    parts = CaptionForm(VideoSink(output, max_video_bytes))
    form = MultipartForm(boundary, parts.open_part)
    total = 0

    def feed(piece: bytes) -> None:
        nonlocal total
        total += len(piece)
        form.feed(piece)
        _check_overhead(total - parts.video.size)

    await in_pieces(_bounded(body, max_video_bytes), feed)
    _check_complete(form, parts)
    if parts.filename is None:
        return Upload(None, 0, parts.fields)
    await anyio.to_thread.run_sync(flush, output)
    return Upload(file, parts.video.size, parts.fields, displayable(parts.filename), parts.video.sha256)


async def unstalled(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Passes the pieces on, at least PACE bytes of them in any ``seconds`` of waiting for the client."""
    pieces = aiter(body)
    left, wanted = seconds, PACE
    while True:
        began = anyio.current_time()
        try:
            with anyio.fail_after(left):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise problems.UploadStalled(
                f"Fewer than {problems.in_units(PACE)} have come in {seconds:g} seconds."
            ) from error
        left, wanted = left - (anyio.current_time() - began), wanted - len(piece)
        if wanted <= 0:
            left, wanted = seconds, PACE
        yield piece


async def in_pieces(body: AsyncIterator[bytes], take: Callable[[bytes], object]) -> None:
    """Hands a body on in a thread, a piece at a time: a slow disk delays nobody else."""
    piece = bytearray()
    async for chunk in body:
        piece += chunk
        if len(piece) >= PIECE:
            await anyio.to_thread.run_sync(take, bytes(piece))
            piece.clear()
    if piece:
        await anyio.to_thread.run_sync(take, bytes(piece))


async def _bounded(body: AsyncIterator[bytes], max_video_bytes: int) -> AsyncIterator[bytes]:
    """Ends the reading at the first byte too many, before it reaches the parser."""
    total = 0
    async for chunk in body:
        total += len(chunk)
        if total > max_video_bytes + FORM_OVERHEAD:
            raise too_large(max_video_bytes)
        yield chunk


def _check_overhead(size: int) -> None:
    """Limits what is no video.

    Raises MalformedForm: preamble, headers, options and epilogue together are small in any real form.
    """
    if size > FORM_OVERHEAD:
        raise problems.MalformedForm(
            f"More than {problems.in_units(FORM_OVERHEAD)} of the form is not its video."
        )


def _check_complete(form: MultipartForm, parts: CaptionForm) -> None:
    if parts.filename is not None and not parts.video.is_complete:
        raise problems.MalformedForm("The form ends in the middle of the video.")
    form.finish()
    parts.check()


def flush(output: BinaryIO) -> None:
    output.flush()
    os.fsync(output.fileno())
