"""Keeps what is known of a film, a line of JSON for each finished segment, so that it is begun only once.

A journal is written to as segments are captioned. A process that is killed leaves at most a torn last line,
which the next one drops and continues after the last whole segment. A finished film is answered from it.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray
from pydantic import ValidationError

from app.documents.segments import FilmDocument, SegmentDocument

FORMAT = 2
KEPT = 30 * 86400.0  #: seconds after which a journal that has not been opened is removed


@dataclass(frozen=True, eq=False)
class KnownSegment:
    """Holds a finished segment."""

    document: SegmentDocument
    #: (D,), its representative frame in the semantic embedding; None where there is none.
    picture: NDArray[np.float32] | None = None
    first_picture: float = 0.0  #: seconds on the clock of players at which the film's first frame is shown

    @property
    def on_players_clock(self) -> SegmentDocument:
        """Returns its document with times as players count them."""
        return self.document.moved(self.first_picture)


@dataclass(eq=False)
class FilmJournal:
    """Writes one film's journal."""

    segments: list[KnownSegment] = field(default_factory=list)
    end: FilmDocument | None = None  #: of the whole, without segments; None as long as the film is not done
    _file: BinaryIO | None = None

    @property
    def last_end(self) -> float:
        """Returns the second up to which the film is done."""
        return self.segments[-1].document.end if self.segments else 0.0

    def append(self, segment: KnownSegment) -> None:
        """Keeps a segment; it is on disk when this returns."""
        line: dict[str, Any] = {"segment": segment.document.model_dump(mode="json")}
        line["first_picture"] = segment.first_picture
        if segment.picture is not None:
            line["picture"] = base64.b64encode(segment.picture.astype("<f2").tobytes()).decode()
        self._write(line)
        self.segments.append(segment)

    def finish(self, end: FilmDocument) -> None:
        """Keeps what is known of the whole; nothing is appended after that."""
        self._write({"end": end.model_dump(mode="json", exclude={"file", "segments"})})
        self.end = end

    def _write(self, line: Mapping[str, Any]) -> None:
        assert self._file is not None, "a journal is written to while it is open"
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())


@contextmanager
def open_journal(folder: Path, key: str) -> Iterator[FilmJournal]:
    """Opens the journal of a ``film_key``; waits for another process that has it open."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{key}.jsonl"
    _remove_old(folder)
    with FileLock(f"{path}.lock"), open(path, "a+b") as file:
        journal = FilmJournal(_file=file)
        file.seek(0)
        for line in file:
            if not _take(journal, line):
                break
        else:
            line = b""
        file.truncate(file.tell() - len(line))
        file.seek(0, os.SEEK_END)
        os.utime(path)
        yield journal


def _take(journal: FilmJournal, line: bytes) -> bool:
    """Adds what a line holds; False where it was not written to its end."""
    if not line.endswith(b"\n"):
        return False
    try:
        content = json.loads(line)
        if "end" in content:
            journal.end = FilmDocument.model_validate({"file": "", "segments": [], **content["end"]})
        else:
            document = SegmentDocument.model_validate(content["segment"])
            picture, zero = _vector(content.get("picture")), float(content["first_picture"])
            journal.segments.append(KnownSegment(document, picture, zero))
    except (ValueError, KeyError, TypeError, ValidationError):
        return False
    return True


def _vector(text: str | None) -> NDArray[np.float32] | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), "<f2").astype(np.float32)


def film_key(film: Path, **settings: object) -> str:
    """Names a journal by the file as it is now and by settings (JSON). Raises OSError."""
    status = film.stat()
    content = [FORMAT, os.path.abspath(film), status.st_size, status.st_mtime_ns, settings]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _remove_old(folder: Path) -> None:
    for path in folder.glob("*.jsonl"):
        try:
            if time.time() - path.stat().st_mtime > KEPT:
                path.unlink()
        except OSError:
            continue  # another process was faster, or has it open
