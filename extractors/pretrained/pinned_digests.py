"""Notes digests of files beside them, and reads them back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from extractors.files import atomic_write
from extractors.pretrained.errors import NoRoom


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
    """``atomic_write`` for weights and what is noted of them. Raises NoRoom."""
    try:
        with atomic_write(file) as unfinished:
            yield unfinished
    except OSError as error:
        raise NoRoom(f"{file} cannot be written: {error.strerror}.") from error
