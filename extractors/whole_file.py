"""A file that appears whole or not at all, whatever stops its writer."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(file: Path) -> Iterator[Path]:
    """A file beside ``file`` to write to; when all has been written, it takes the place of ``file``.

    Its name is nobody else's, so that two may write the same file at a time, and begins with a dot. What
    takes the place is on the disk before it has the name, and anybody may read it, since a service may run
    as another user than its files were made by. A writer that is killed leaves it there. Raises OSError.
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
