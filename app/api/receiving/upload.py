"""Takes a video to the disk as it arrives: in pieces, within limits of size, time and room.

The size limit ends the reading at the first byte too many; whatever goes wrong, the half-written file is gone
before the error leaves here. Room on the disk is kept by allocating a file's blocks before its bytes come.
An allocation is seen by every thread and process that asks how much is free, and goes with its file, so that
uploads side by side leave the floor that each of them alone would leave, and no book of promises is kept.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import io
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import anyio
import anyio.to_thread

from app.api import refusals

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FORM_OVERHEAD = 64 * 1024  #: bytes of a body that are not the video: options, boundaries, part headers
STALL_SECONDS = 20.0  #: a client that sends fewer than PACE bytes in this time is given up
PACE = 16 * 1024
UNLIMITED = sys.maxsize  #: bytes of a body, for FastAPI, on routes that limit it as they read it
#: Bytes handed to the parser (and to the disk) at a time: what each of some hundred uploads holds in memory.
PIECE = 256 * 1024
FILENAME_LENGTH = 255  #: characters kept of a file's name
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"  #: of Persian words and of emoji

STEP = 1024 * 1024  #: bytes allocated ahead in a file whose length was not announced
#: What file systems that cannot allocate ahead say; there the floor is only looked at.
CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


@dataclass(frozen=True)
class Upload:
    """Holds what a request has brought."""

    file: Path | None  #: holds the video; None where ``fields`` have a url instead
    size: int  #: bytes of the video
    fields: Mapping[str, Any]  #: as sent, texts or, where is_json, values
    filename: str = ""  #: the video's on its sender's disk, fit for display
    sha256: str | None = None  #: of the video
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


def displayable(filename: str) -> str:
    """Cleans a sender's file name of its folders and of what a terminal or a page could trip over."""
    name = re.split(r"[/\\]", filename)[-1].strip()
    return "".join(_displayable_letter(letter) for letter in name[:FILENAME_LENGTH])


def _displayable_letter(letter: str) -> str:
    if unicodedata.category(letter) == "Zs":  # macOS puts a narrow no-break space into its recordings' names
        return " "
    return letter if letter.isprintable() or letter in JOINERS else "\N{REPLACEMENT CHARACTER}"


@asynccontextmanager
async def opened(
    file: Path, headers: Mapping[str, str], most: int, room: Room, overhead: int = 0
) -> AsyncIterator[VideoSink]:
    """Opens a file for a video, which is on the disk at the end; it is gone where anything goes wrong.

    Args:
        headers: the request's, which may announce how much comes.
        most: bytes of the video.
        overhead: bytes that the body may have beside the video.

    Raises:
        UploadTooLarge: a longer body is announced, of which nothing is read then.
        StorageFull: there is no room for it.
    """
    announced = announced_bytes(headers)
    if announced > most + overhead:
        raise too_large(most)
    try:
        with full_disk_named(), await anyio.to_thread.run_sync(room.open, file, announced) as output:
            yield VideoSink(output, most)
            await anyio.to_thread.run_sync(flush, output)
    except BaseException:
        file.unlink(missing_ok=True)
        raise


@contextmanager
def full_disk_named() -> Iterator[None]:
    """Turns the disk's own refusal into StorageFull."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise refusals.StorageFull from error
        raise


def too_large(limit: int) -> refusals.UploadTooLarge:
    return refusals.UploadTooLarge(
        f"The video is larger than {refusals.in_units(limit)}, the most that is taken."
    )


async def unstalled(body: AsyncIterator[bytes], seconds: float) -> AsyncIterator[bytes]:
    """Passes the pieces on, at least PACE bytes of them in any ``seconds`` of waiting for the client."""
    pieces = aiter(body)
    left, missing = seconds, PACE
    while True:
        began = anyio.current_time()
        try:
            with anyio.fail_after(left):
                piece = await anext(pieces)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise refusals.UploadStalled(
                f"Fewer than {refusals.in_units(PACE)} have come in {seconds:g} seconds."
            ) from error
        left, missing = left - (anyio.current_time() - began), missing - len(piece)
        if missing <= 0:
            left, missing = seconds, PACE
        yield piece


async def in_pieces(body: AsyncIterator[bytes], take: Callable[[bytes], object]) -> None:
    """Hands a body on in a thread, a piece at a time: a slow disk delays no other request."""
    piece = bytearray()

    def hand_on() -> None:  # copies it where a thread is free for it: hundreds may wait for one
        take(bytes(piece))
        piece.clear()

    async for chunk in body:
        piece += chunk
        if len(piece) >= PIECE:
            await anyio.to_thread.run_sync(hand_on)
    if piece:
        await anyio.to_thread.run_sync(hand_on)


def flush(output: BinaryIO) -> None:
    output.flush()
    os.fsync(output.fileno())


@dataclass(eq=False)
class Room:
    """Watches the room on the disk of ``folder``, of which ``min_free`` bytes stay free."""

    folder: Path  #: where files arrive
    min_free: int
    #: Removes what can be done without, until what it is given tells that no bytes are missing; returns
    #: whether there is room then.
    make_room: Callable[[Callable[[], int]], bool] | None = None

    def check(self, needed: int) -> None:
        """Makes room where there is none. Raises StorageFull: ``needed`` bytes would go below the floor."""
        self.folder.mkdir(parents=True, exist_ok=True)

        def missing() -> int:
            return self.min_free + needed - shutil.disk_usage(self.folder).free

        if missing() > 0 and not (self.make_room and self.make_room(missing)):
            raise refusals.StorageFull("The disk that uploads arrive on is almost full.")

    def open(self, file: Path, announced: int = 0) -> ReservedFile:
        """Opens a new file for writing, with room for what was announced. Raises StorageFull."""
        output = ReservedFile(file, self)
        try:
            if announced:
                output.reserve(announced)
        except BaseException:
            output.close()
            file.unlink(missing_ok=True)
            raise
        return output

    def allocate(self, descriptor: int, start: int, length: int) -> None:
        """Gives blocks to a file, one allocation at a time on this disk.

        Args:
            descriptor: the file, open for writing.
            start: byte that the blocks begin at.

        Raises:
            StorageFull: too little would stay free.
            OSError: the disk itself refuses.
        """
        with self.turn():
            self.check(length)
            if not hasattr(os, "posix_fallocate"):
                return
            try:
                os.posix_fallocate(descriptor, start, length)
            except OSError as error:
                if error.errno not in CANNOT_ALLOCATE:
                    raise

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Waits for its turn: between looking at what is free and taking it no other upload may look."""
        handle = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)


class ReservedFile(io.BufferedWriter):
    """A file that is written from its start to its end and always has room for the next bytes."""

    def __init__(self, file: Path, room: Room) -> None:
        super().__init__(io.FileIO(file, "wb"))
        self._room = room
        self._size = self._reserved = 0

    def reserve(self, size: int) -> None:
        """Makes room for ``size`` bytes in all. Raises StorageFull, and OSError where the disk is full."""
        if size > self._reserved:
            self._room.allocate(self.fileno(), self._reserved, size - self._reserved)
            self._reserved = size

    def write(self, data: ReadableBuffer, /) -> int:
        length = memoryview(data).nbytes
        if self._size + length > self._reserved:
            self.reserve(self._size + max(length, STEP))
        self._size += length
        return super().write(data)

    def flush(self) -> None:
        """Gives back what was reserved and not needed."""
        super().flush()
        if self._reserved > self._size:
            os.ftruncate(self.fileno(), self._size)
            self._reserved = self._size


def announced_bytes(headers: Mapping[str, str]) -> int:
    """Returns the length of a body as its header has it, 0 without one."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 20 else 0
