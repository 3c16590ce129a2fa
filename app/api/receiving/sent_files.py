"""Keeps files that arrive in parts, until a job takes them or nothing comes of them: ``POST /files``.

    files/<id>/about.json    how long the file is to be, its name, whose it is
    files/<id>/part          what has come of it: its length says how much

One request at a time appends to a file and holds its lock, which goes with its process. What has come stays
where a request breaks off, and is removed a day after the last byte.
"""

import fcntl
import hashlib
import io
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ValidationError

from app.api import refusals
from app.api.receiving.upload import Room, full_disk_named, too_large

KEPT_SECONDS = 86400.0  #: without another byte, after which a file is removed
IDLE_SECONDS = 3600.0  #: after which it is removed already where its owner sends other ones
FILE_ID = re.compile("[0-9a-f]{32}")
MOST_OF_ONE = 20  #: files of one owner that no job has taken


class SentFile(BaseModel, frozen=True):
    """Describes a file that arrives, as ``about.json`` has it."""

    id: str
    owner: str | None  #: id of the API key that sends it
    size: int  #: bytes that it will have
    filename: str  #: on its sender's disk, fit for display


class FilePart(io.FileIO):
    """Takes the next bytes of a file, no more than it is to have and as there is room for."""

    def __init__(self, path: Path, file: SentFile, room: Room) -> None:
        super().__init__(path, "ab")
        self._file, self._room, self.offset = file, room, 0

    def append(self, data: bytes) -> None:
        """Writes some bytes, and flushes the file after its last one. Raises UploadTooLarge, StorageFull."""
        if self.offset + len(data) > self._file.size:
            raise too_large(self._file.size)
        with full_disk_named():
            self._room.check(len(data))
            left = memoryview(data)
            while left:
                left = left[self.write(left) :]
        self.offset += len(data)
        if self.offset == self._file.size:
            os.fsync(self.fileno())


@dataclass(frozen=True)
class SentFiles:
    """Keeps the files of one machine."""

    folder: Path
    room: Room  #: of the disk that they are on
    most_bytes: int  #: of one owner's files together

    def create(self, size: int, filename: str, owner: str | None) -> SentFile:
        """Begins a file. Raises TooManyFiles, StorageFull.

        Args:
            size: bytes that are to come.
            filename: as its sender calls it.
            owner: the key's name; None where none is asked for.
        """
        self.room.check(size)
        with self.room.turn():  # between counting files and making one no other process counts
            self._make_share(size, owner)
            file = SentFile(id=uuid.uuid4().hex, owner=owner, size=size, filename=filename)
            (self.folder / file.id).mkdir(parents=True)
            (self.folder / file.id / "part").touch()
            (self.folder / file.id / "about.json").write_text(file.model_dump_json())
        return file

    def _make_share(self, size: int, owner: str | None) -> None:
        """Removes an owner's files of which nothing has come for long, as far as another one needs their
        share. Raises TooManyFiles.
        """
        files = sorted((file for file in self._all() if file.owner == owner), key=self.expires_at)
        while len(files) >= MOST_OF_ONE or sum(file.size for file in files) + size > self.most_bytes:
            if not files or self.expires_at(files[0]) > time.time() + KEPT_SECONDS - IDLE_SECONDS:
                most = refusals.in_units(self.most_bytes)
                raise refusals.TooManyFiles(f"There may be {MOST_OF_ONE} of them, with {most} together.")
            self.remove(files.pop(0))

    def find(self, file_id: str, only: str | None) -> SentFile:
        """Reads about a file; ``only``: id of the owner whose files alone are found. Raises UnknownFile."""
        file = self._read(file_id)
        if file is None or only not in (None, file.owner) or self.expires_at(file) < time.time():
            raise refusals.UnknownFile(f"There is no file {file_id[:64]}.")
        return file

    def expires_at(self, file: SentFile) -> float:
        """Returns when a file is removed, where nothing more comes of it: seconds since 1970."""
        return self._stat(file).st_mtime + KEPT_SECONDS

    def offset(self, file: SentFile) -> int:
        """Returns how many bytes have come."""
        return self._stat(file).st_size

    def path(self, file: SentFile) -> Path:
        """Returns where what has come of a file lies."""
        return self.folder / file.id / "part"

    @contextmanager
    def appending(self, file: SentFile, offset: int) -> Iterator[FilePart]:
        """Opens a file for its next bytes.

        Args:
            file: the file.
            offset: how many bytes the sender knows to have come.

        Raises:
            WrongOffset: more or fewer have come, or another request appends to it.
        """
        with FilePart(self.path(file), file, self.room) as part:
            try:
                fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise refusals.WrongOffset("Another request appends to the file.") from error
            part.offset = self.offset(file)
            if part.offset != offset:
                raise refusals.WrongOffset(f"{part.offset:,} bytes have come, and these begin at {offset:,}.")
            yield part

    def digest(self, file: SentFile) -> str:
        """Digests a file that has come whole, as ``Submission.sha256`` has it. Raises FileIncomplete."""
        if (offset := self.offset(file)) < file.size:
            raise refusals.FileIncomplete(f"{offset:,} of {file.size:,} bytes have come.")
        with self.path(file).open("rb") as part:
            return hashlib.file_digest(part, "sha256").hexdigest()

    def remove(self, file: SentFile) -> None:
        shutil.rmtree(self.folder / file.id, ignore_errors=True)

    def sweep(self) -> None:
        """Removes what nothing has come of for KEPT_SECONDS, and what a killed process has left."""
        for path in self.folder.glob("*"):
            with suppress(FileNotFoundError):
                age = time.time() - max(each.stat().st_mtime for each in (path, *path.glob("part")))
                if age > KEPT_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)

    def _all(self) -> Iterator[SentFile]:
        yield from (file for path in self.folder.glob("*") if (file := self._read(path.name)) is not None)

    def _read(self, file_id: str) -> SentFile | None:
        if not FILE_ID.fullmatch(file_id):
            return None
        try:
            return SentFile.model_validate_json((self.folder / file_id / "about.json").read_text())
        except (OSError, ValidationError):
            return None

    def _stat(self, file: SentFile) -> os.stat_result:
        try:
            return self.path(file).stat()
        except FileNotFoundError as error:  # it was removed at this moment
            raise refusals.UnknownFile(f"The file {file.id} is gone.") from error
