"""A multipart form read as it arrives: the video to disk, the options to memory, nothing else anywhere.

The parser is given bounded pieces, so that memory stays flat; the size limit ends the reading at the
first byte too many; whatever goes wrong, the half-written file is gone before the error leaves here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread
from streaming_form_data import ParseFailedException, StreamingFormDataParser
from streaming_form_data.parser import UnexpectedPartException
from streaming_form_data.targets import BaseTarget

from app import problems
from app.options import FORM_FIELDS
from app.room import Room, announced_bytes

FIELD_LIMIT = 1024  #: bytes in the value of an option
FORM_OVERHEAD = 64 * 1024  #: bytes of a body that are not the video: options, boundaries, part headers
STALL_SECONDS = 60.0  #: longest silence of a client before its upload is given up
PIECE = 1024 * 1024  #: bytes handed to the parser (and to the disk) at a time
FORM_NAMES = ("video", *FORM_FIELDS)


@dataclass(frozen=True)
class Upload:
    """A received form: ``file`` holds the video (``size`` bytes, on disk), ``fields`` the options as sent."""

    file: Path
    size: int
    fields: Mapping[str, str]


class _Video(BaseTarget):  # type: ignore[misc]
    """Writes the part called video, of at most ``limit`` bytes."""

    def __init__(self, output: BinaryIO, limit: int) -> None:
        super().__init__()
        self._output, self._limit = output, limit
        self.size = 0
        self.has_begun = self.is_complete = False

    def on_start(self) -> None:
        if self.has_begun:
            raise problems.SeveralVideos("The form has more than one field called video.")
        self.has_begun = True

    def on_data_received(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self._limit:
            raise too_large(self._limit)
        self._output.write(chunk)

    def on_finish(self) -> None:
        self.is_complete = True


class _Option(BaseTarget):  # type: ignore[misc]
    """Keeps the value of one option."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._bytes: bytearray | None = None

    def on_start(self) -> None:
        if self._bytes is not None:
            raise problems.InvalidOption(f"{self._name} is given more than once.")
        self._bytes = bytearray()

    def on_data_received(self, chunk: bytes) -> None:
        assert self._bytes is not None
        self._bytes += chunk
        if len(self._bytes) > FIELD_LIMIT:
            raise problems.InvalidOption(f"{self._name} is longer than {FIELD_LIMIT} bytes.")

    @property
    def value(self) -> str | None:
        return None if self._bytes is None else self._bytes.decode("utf-8", "replace").strip()


class _Refused(BaseTarget):  # type: ignore[misc]
    """``url``: refused as soon as its part begins, so that nobody believes it was followed."""

    def on_start(self) -> None:
        raise problems.UrlNotSupported("The form has a field called url.")


async def receive(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    file: Path,
    max_video_bytes: int,
    stall_seconds: float = STALL_SECONDS,
    room: Room | None = None,
) -> Upload:
    """Reads a whole form from ``body``; the video is in ``file`` and flushed to disk when this returns.

    room: of the disk, and what must stay free of it; by default nothing. Raises leaves of RequestError, and
    whatever ``body`` raises (the client went away); ``file`` is then removed.
    """
    _refuse_by_header(headers, max_video_bytes)
    try:
        room = room or Room(file.parent, min_free=0)
        with await anyio.to_thread.run_sync(room.open, file, announced_bytes(headers)) as output:
            return await _receive(_unstalled(body, stall_seconds), headers, file, output, max_video_bytes)
    except OSError as error:
        file.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise problems.StorageFull from error
        raise
    except BaseException:
        file.unlink(missing_ok=True)
        raise


def too_large(limit: int) -> problems.UploadTooLarge:
    return problems.UploadTooLarge(f"The video is larger than the {limit:,} bytes that this server takes.")


def _refuse_by_header(headers: Mapping[str, str], max_video_bytes: int) -> None:
    """Says 413 before a byte is read where the client announced too many."""
    announced = headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > max_video_bytes + FORM_OVERHEAD:
        raise too_large(max_video_bytes)


async def _receive(
    body: AsyncIterator[bytes],
    headers: Mapping[str, str],
    file: Path,
    output: BinaryIO,
    max_video_bytes: int,
) -> Upload:
    options = {name: _Option(name) for name in FORM_FIELDS}
    video = _Video(output, max_video_bytes)
    parser = _parser(headers, video, options)
    await _feed(parser, body, max_video_bytes)
    _check(video)
    await anyio.to_thread.run_sync(_flush, output)
    fields = {name: option.value for name, option in options.items()}
    return Upload(file, video.size, {name: value for name, value in fields.items() if value is not None})


async def _unstalled(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """The same pieces, each within ``seconds`` of the one before."""
    pieces = aiter(body)
    while True:
        try:
            with anyio.fail_after(seconds):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise problems.UploadStalled(f"No byte has come for {seconds:g} seconds.") from error
        yield piece


def _parser(
    headers: Mapping[str, str], video: _Video, options: Mapping[str, _Option]
) -> StreamingFormDataParser:
    try:
        parser = StreamingFormDataParser(headers=headers, strict=True)
    except ParseFailedException as error:
        sent = headers.get("content-type", "none")
        raise problems.NotMultipart(f"The content type is {sent[:100]}, not multipart/form-data.") from error
    parser.register("video", video)
    parser.register("url", _Refused())
    for name, option in options.items():
        parser.register(name, option)
    return parser


async def _feed(parser: StreamingFormDataParser, body: AsyncIterator[bytes], max_video_bytes: int) -> None:
    """Parsing and writing happen in a thread, a piece at a time: a slow disk delays nobody else."""
    piece = bytearray()
    total = 0
    async for chunk in body:
        total += len(chunk)
        if total > max_video_bytes + FORM_OVERHEAD:
            raise too_large(max_video_bytes)
        piece += chunk
        if len(piece) >= PIECE:
            await anyio.to_thread.run_sync(_parse, parser, bytes(piece))
            piece.clear()
    if piece:
        await anyio.to_thread.run_sync(_parse, parser, bytes(piece))


def _parse(parser: StreamingFormDataParser, piece: bytes) -> None:
    try:
        parser.data_received(piece)
    except UnexpectedPartException as error:
        name = str(error.part_name)[:64]
        raise problems.UnknownField(f"The form has a field called {name}.", known=FORM_NAMES) from error
    except ParseFailedException as error:
        raise problems.MalformedForm("The body is not what its content type announces.") from error


def _check(video: _Video) -> None:
    if not video.is_complete:
        if video.has_begun:
            raise problems.MalformedForm("The form ends in the middle of the video.")
        raise problems.VideoMissing("The form has no field called video.")
    if video.multipart_filename is None:  # curl's -F video=clip.mp4, its @ forgotten, sends the name as text
        raise problems.VideoMissing("The field video holds text, not a file.")
    if video.size == 0:
        raise problems.VideoEmpty("The file in the field video has no bytes.")


def _flush(output: BinaryIO) -> None:
    output.flush()
    os.fsync(output.fileno())
