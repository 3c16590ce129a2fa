"""Keeps room on the disk that uploads arrive on: a file's blocks are allocated before its bytes come.

An allocation is seen by every thread and process that asks how much is free, and goes with its file, so that
uploads side by side leave the floor that each of them alone would leave, and no book of promises is kept.
"""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.api import problems

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STEP = 1024 * 1024  #: bytes allocated ahead in a file whose length was not announced
#: What file systems that cannot allocate ahead say; there the floor is only looked at.
CANNOT_ALLOCATE = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class Room:
    """Watches the room on the disk of ``folder``, of which ``min_free`` bytes stay free.

    Args:
        folder: where files arrive.
        min_free: bytes.
        make_room: removes what can be done without, until what it is given tells that no bytes are
            missing; says whether there is room then.
    """

    def __init__(
        self, folder: Path, min_free: int, make_room: Callable[[Callable[[], int]], bool] | None = None
    ) -> None:
        self._folder, self._min_free, self._make_room = folder, min_free, make_room

    def check(self, needed: int) -> None:
        """Checks that there is room, and makes some where there is none.

        Raises StorageFull where ``needed`` bytes more would go below the floor all the same.
        """
        self._folder.mkdir(parents=True, exist_ok=True)

        def missing() -> int:
            return self._min_free + needed - shutil.disk_usage(self._folder).free

        if missing() > 0 and not (self._make_room and self._make_room(missing)):
            raise problems.StorageFull("The disk that uploads arrive on is almost full.")

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
            length: how many bytes they hold.

        Raises:
            StorageFull: too little would stay free.
            OSError: the disk itself refuses.
        """
        with self._turn():
            self.check(length)
            if not hasattr(os, "posix_fallocate"):
                return
            try:
                os.posix_fallocate(descriptor, start, length)
            except OSError as error:
                if error.errno not in CANNOT_ALLOCATE:
                    raise

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Waits for its turn: between looking at what is free and taking it nobody else may look."""
        handle = os.open(self._folder, os.O_RDONLY)
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
        """Makes room for ``size`` bytes in all.

        Raises StorageFull, and OSError where the disk itself is full.
        """
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
    """Returns the length of a body as its header says, 0 where it says none."""
    length = headers.get("content-length", "")
    return int(length) if length.isascii() and length.isdecimal() and len(length) < 20 else 0
