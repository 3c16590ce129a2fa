"""Opens a media file by its path, or by a descriptor that another process has opened and handed over."""

import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from extractors.media import errors


@dataclass(frozen=True)
class HandedFile:
    """Stands for a file that is open and has no name here. All its readers share one position, so that they
    read one after the other, each from the first byte.
    """

    descriptor: int


#: Places in a file, and what is read there instead of what it has.
MendedBytes: TypeAlias = tuple[tuple[int, bytes], ...]


@dataclass(frozen=True)
class MendedFile:
    """Stands for a file some of whose bytes are read as others; the file stays as it is."""

    file: "MediaFile"
    bytes_at: MendedBytes


MediaFile: TypeAlias = str | os.PathLike[str] | HandedFile | MendedFile


def mend(file: MediaFile, bytes_at: MendedBytes) -> MediaFile:
    """Has bytes of a file read as others; the file itself where there are none."""
    return MendedFile(file, bytes_at) if bytes_at else file


class _MendedReader(io.FileIO):
    bytes_at: MendedBytes = ()

    def readinto(self, buffer: Any) -> int:
        begin = self.tell()
        count = super().readinto(buffer) or 0
        for place, content in self.bytes_at:
            for at, byte in enumerate(content, place - begin):
                if 0 <= at < count:
                    memoryview(buffer)[at] = byte
        return count


def open_bytes(file: MediaFile, descriptor: int | None = None) -> BinaryIO:
    """Opens a file at its first byte; a mended one by a descriptor that stays open.

    Raises MissingFile, EmptyFile.
    """
    if isinstance(file, MendedFile):
        is_ours = descriptor is None
        raw = _MendedReader(open_descriptor(file) if descriptor is None else descriptor, closefd=is_ours)
        raw.bytes_at = file.bytes_at
        return io.BufferedReader(raw)
    return open(open_descriptor(file), "rb")


def open_descriptor(file: MediaFile) -> int:
    """Opens a file at its first byte, for the caller to close. Raises MissingFile, EmptyFile."""
    if isinstance(file, MendedFile):
        return open_descriptor(file.file)
    if isinstance(file, HandedFile):
        os.lseek(file.descriptor, 0, os.SEEK_SET)
        return os.dup(file.descriptor)
    place = Path(file)
    try:
        size = place.stat().st_size if place.is_file() else None
        if size == 0:
            raise errors.EmptyFile("The file is empty: it has no bytes at all.")
        if size is not None:
            return os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        pass
    if place.is_dir():
        raise errors.MissingFile(f"{place.name!r} is a folder, not a file.")
    raise errors.MissingFile(f"There is no readable file named {place.name!r}.")


def identify_bytes(file: MediaFile) -> tuple[int, ...]:
    """Names a file's bytes: equal numbers, while nothing changes them. Raises MissingFile, EmptyFile."""
    descriptor = open_descriptor(file)
    try:
        status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
