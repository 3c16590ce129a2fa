"""Writes files whole or not at all, and computes their digests."""

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic_write(file: Path) -> Iterator[Path]:
    """Opens a file beside ``file`` to write to; when all has been written, it takes the place of ``file``.

    Its name is unique, so that two may write the same file at a time, and begins with a dot. What takes the
    place is on the disk before it has the name, and every user may read it, since a service may run as
    another user than its files were made by. A writer that is killed leaves it there. Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        unfinished.chmod(0o644)  # also after writers, as safetensors', that put a file of their own there
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())
        unfinished.replace(file)
    finally:
        unfinished.unlink(missing_ok=True)


def sha256_of(file: Path) -> str:
    """Computes the sha256 of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_blob_of(file: Path) -> str:
    """Computes git's name of a file: what a repository publishes of one that is too large to read."""
    head = hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
    with file.open("rb") as stream:
        while piece := stream.read(1 << 20):
            head.update(piece)
    return head.hexdigest()


def digest_of(digests: Iterable[str]) -> str:
    """Returns one sha256 for several files: of their sha256, one a line."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def write_path(path: Path | str) -> str:
    r"""Writes a path as text that any format can hold: bytes that are no UTF-8 as ``\xe9``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
