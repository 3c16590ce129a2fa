"""Keeps converted networks in a folder, for all processes and data folders of a user, within a bound.

KEY.json     a note: which folder has the model, and the sources that the network is written in
KEY.lock     held by the process that converts, or reads, the model
NAME/        the model
"""

import importlib.util
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Self

from filelock import FileLock
from pydantic import BaseModel, ValidationError

from extractors.files import sha256_of

MODEL_FILE = "model.xml"
#: Age from which a model without a note is an orphan; before that its note may be about to be written.
ORPHAN_SECONDS = 3600.0


class KeptModel(BaseModel):
    """Names the folder of a network's converted model, and the sources that the network is written in."""

    folder: str
    sources: dict[str, str]  #: module → sha256 of its file

    @classmethod
    def read(cls, note: Path) -> Self | None:
        """Reads a note; None where there is none that can be read."""
        try:
            return cls.model_validate_json(note.read_bytes())
        except (OSError, ValidationError):
            return None

    @property
    def is_current(self) -> bool:
        """Whether all sources are what they were when the network was converted."""
        return all(digest_of_source(name) == digest for name, digest in self.sources.items())


@contextmanager
def lock_model(note: Path) -> Iterator[None]:
    """Holds the lock of a note's model, so that one process converts it and others wait.

    The lock ends with its process. There is none where the folder cannot be written.
    """
    lock = FileLock(note.with_suffix(".lock"))
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError:
        yield
        return
    try:
        yield
    finally:
        lock.release()


def note_use(note: Path) -> None:
    """Gives the note the present time, by which ``prune_models`` chooses."""
    with suppress(OSError):
        os.utime(note)


def prune_models(folder: Path, most_bytes: int) -> None:
    """Deletes the models that were not used longest, until the others take ``most_bytes`` at most.

    Those that no note names go too.
    A process that has read a model keeps it in memory; one that is about to, converts it again.
    """
    notes = sorted(folder.glob("*.json"), key=_last_change, reverse=True)
    named, total = set[str](), 0
    for note in notes:
        kept = KeptModel.read(note)
        files = [] if kept is None else (folder / kept.folder).glob("*")
        total += sum(file.stat().st_size for file in files)
        if kept is None or total > most_bytes:
            note.unlink(missing_ok=True)
        if kept is not None and total > most_bytes:
            shutil.rmtree(folder / kept.folder, ignore_errors=True)
        elif kept is not None:
            named.add(kept.folder)
    for model in {file.parent for file in folder.glob(f"*/{MODEL_FILE}")}:
        if model.name not in named and time.time() - _last_change(model) > ORPHAN_SECONDS:
            shutil.rmtree(model, ignore_errors=True)


def digest_of_source(name: str) -> str:
    """Digests a module's file; empty where there is none."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None) or getattr(_spec_of(name), "origin", None)
    return sha256_of(Path(file)) if file and Path(file).is_file() else ""


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None


def _last_change(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # another process has deleted it
        return 0.0
