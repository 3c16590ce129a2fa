"""A file system of a few megabytes, for tests that fill it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

MIB = 2**20


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """``folder`` as a disk of that size. Skips the test where this user may not mount one."""
    folder.mkdir(exist_ok=True)
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    made = subprocess.run(command, capture_output=True) if mount else None
    if made is None or made.returncode != 0:
        pytest.skip("a small file system cannot be mounted here (that takes root)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path, leave: int = 0) -> Path:
    """A file that takes all of the disk but ``leave`` bytes."""
    file = folder / "filler"
    with file.open("ab") as output:
        while (free := shutil.disk_usage(folder).free - leave) > 0:
            try:
                output.write(bytes(min(free, MIB)))
                output.flush()
            except OSError:
                break
    return file
