"""Where files live: uploads and results, in a directory or at any fsspec URL.

    uploads/<job>                     the file as it came
    results/<job>/attention.json      weights of every word
    results/<job>/attention.png       their picture, drawn when first asked for
    results/<job>/frames/<k>.jpg      the frames that the captioner saw

A blob appears whole or not at all. Files still being written lie in ``staging``, always on this machine.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem


class BlobMissingError(Exception):
    """No blob has this key (it was never written, or it has been removed)."""


class Blobs:
    """Bytes under keys such as ``uploads/<job>``.

    url: a directory or an fsspec URL, e.g. ``s3://bucket/reelword`` (the package of its protocol installed).
    staging: a directory on this machine; where ``url`` is a directory too, on the same file system.
    """

    def __init__(self, url: str, staging: Path) -> None:
        self._files, root = fsspec.core.url_to_fs(url)
        self._root = root.rstrip("/")
        self._is_local = isinstance(self._files, LocalFileSystem)
        self.staging = staging

    def new_file(self) -> Path:
        """A path in ``staging`` that nobody else will be given."""
        self.staging.mkdir(parents=True, exist_ok=True)
        return self.staging / f"{uuid.uuid4().hex}.part"

    def adopt(self, file: Path, key: str) -> None:
        """Moves a finished file, flushed to disk by its writer, to ``key``."""
        target = self._path(key)
        if self._is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            os.replace(file, target)
            _flush_directory(Path(target).parent)
        else:
            self._files.put_file(str(file), target)
            file.unlink()

    def write(self, key: str, data: bytes) -> None:
        """Stores ``data``, replacing what was there."""
        file = self.new_file()
        try:
            with file.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            self.adopt(file, key)
        finally:
            file.unlink(missing_ok=True)

    def read(self, key: str) -> bytes:
        """Raises BlobMissingError."""
        try:
            data = self._files.cat_file(self._path(key))
        except FileNotFoundError as error:
            raise BlobMissingError(key) from error
        return bytes(data)

    def exists(self, key: str) -> bool:
        return bool(self._files.exists(self._path(key)))

    def remove(self, key: str) -> None:
        """Removes a blob, or all below a key; what is not there is removed already."""
        try:
            self._files.rm(self._path(key), recursive=True)
        except FileNotFoundError:
            return

    @contextmanager
    def local(self, key: str) -> Iterator[Path]:
        """The blob as a file on this machine, for readers that need a path. Raises BlobMissingError."""
        path = self._path(key)
        if not self._files.exists(path):
            raise BlobMissingError(key)
        if self._is_local:
            yield Path(path)
            return
        copy = self.new_file()
        try:
            self._files.get_file(path, str(copy))
            yield copy
        finally:
            copy.unlink(missing_ok=True)

    def sweep(self, older_than: float) -> int:
        """Removes staged files untouched for ``older_than`` seconds: a server was killed in their middle."""
        stale = [file for file in self.staging.glob("*.part") if _age(file) > older_than]
        for file in stale:
            file.unlink(missing_ok=True)
        return len(stale)

    def free_bytes(self) -> int:
        """Room left where uploads arrive."""
        self.staging.mkdir(parents=True, exist_ok=True)
        return shutil.disk_usage(self.staging).free

    def _path(self, key: str) -> str:
        parts = PurePosixPath(key).parts
        if not parts or key.startswith("/") or ".." in parts:
            raise ValueError(f"not a blob key: {key!r}")
        return f"{self._root}/{key}"


def _age(file: Path) -> float:
    try:
        return time.time() - file.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _flush_directory(directory: Path) -> None:
    """A rename is on disk once its directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
