"""Digests of files, noted beside them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extractors.weights_errors import NoRoom
from extractors.whole_file import whole_file


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_blob_of(file: Path) -> str:
    """The name under which git keeps such a file: what a repository publishes of a file too large to read."""
    head = hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            head.update(piece)
    return head.hexdigest()


def pin(file: Path) -> Path:
    """Where the digest of a file is noted."""
    return file.with_name(f"{file.name}.sha256")


def pinned(file: Path) -> str | None:
    """The digest noted for a file, if there is one."""
    try:
        return pin(file).read_text(encoding="utf-8").split()[0]
    except (FileNotFoundError, IndexError):
        return None


def remember(file: Path, digest: str) -> None:
    """Notes it as sha256sum does, so that ``sha256sum --check`` reads it. Raises NoRoom."""
    with writing(pin(file)) as unfinished:
        unfinished.write_text(f"{digest}  {file.name}\n", encoding="utf-8")


@contextmanager
def writing(file: Path) -> Iterator[Path]:
    """``whole_file`` for weights and what is noted of them. Raises NoRoom."""
    try:
        with whole_file(file) as unfinished:
            yield unfinished
    except OSError as error:
        raise NoRoom(f"{file} cannot be written: {error.strerror}.") from error
