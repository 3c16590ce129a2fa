"""Keeps files: uploads and results, in a directory or at any fsspec URL.

    uploads/<job>                             the file as it came; kept as REELWORD_KEEP_UPLOADS says
    results/<job>/<token>/attention.json      weights of every word
    results/<job>/<token>/attention.png       their picture, drawn when first asked for
    results/<job>/<token>/frames/<k>.jpg      the frames that the captioner saw
    results/<job>/<token>/answer.json         an answer too large for Redis
    results/<job>/<token>/segments/           of a film that is cut: app/jobs/keeping/kept_segments.py

The token is that of the claim that wrote there, and the record says whose counts: a worker that wakes up
after its lease harms no other's results. Results of versions before lie below the job itself.
A blob appears whole or not at all. Files still being written lie in ``staging``, always on this machine,
each locked by its writer: a lock goes with its process, so that a file without one is a leftover.
"""

import errno
import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

import fsspec
from fsspec.implementations.local import LocalFileSystem

WRITERS = 8  #: blobs that are written side by side
PIECE = 256 * 1024  #: bytes of a blob that are read at a time
BLOCK = 4096  #: bytes that a disk gives at once
#: What file systems that have no hard links, or have no more for this file, say.
CANNOT_LINK = (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class BlobMissingError(Exception):
    """No blob has this key (it was never written, or it has been removed)."""


class Blobs:
    """Keeps bytes under keys such as ``uploads/<job>``.

    url: a directory or an fsspec URL, e.g. ``s3://bucket/reelword`` (the package of its protocol installed).
    staging: a directory on this machine, best on the same file system where ``url`` is a directory too.
    is_local: ``url`` is a directory.
    """

    def __init__(self, url: str, staging: Path) -> None:
        self._files, root = fsspec.core.url_to_fs(url)
        self._root = root.rstrip("/")
        self.is_local = isinstance(self._files, LocalFileSystem)
        self.staging = staging

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Makes a new empty file in ``staging``, locked until it is adopted or, at the end, removed."""
        self.staging.mkdir(parents=True, exist_ok=True)
        file = self.staging / f"{uuid.uuid4().hex}.part"
        handle = os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            _lock(handle)
            yield file
        finally:
            file.unlink(missing_ok=True)
            os.close(handle)

    def adopt(self, file: Path, key: str) -> None:
        """Moves a finished file, flushed to disk by its writer, to ``key``."""
        target = self._path(key)
        if self.is_local:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
            _move(file, Path(target))
            _flush_directory(Path(target).parent)
        else:
            self._files.put_file(str(file), target)
            file.unlink()

    def write(self, key: str, data: bytes) -> None:
        """Stores ``data``, replacing what was there."""
        with self.staged() as file:
            with file.open("wb") as handle:
                handle.write(data)
                handle.flush()
                os.fsync(handle.fileno())
            self.adopt(file, key)

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Stores several, side by side: waiting for the disk, or for a store, is most of the work.

        files: key → content. Raises what writing one of them raises, once all others are written.
        """
        with ThreadPoolExecutor(min(len(files), WRITERS) or 1, "blobs") as pool:
            for written in [pool.submit(self.write, key, data) for key, data in files.items()]:
                written.result()

    def read(self, key: str) -> bytes:
        """Reads a blob. Raises BlobMissingError."""
        with _missing_named(key):
            return bytes(self._files.cat_file(self._path(key)))

    def size(self, key: str) -> int:
        """Returns the bytes of a blob. Raises BlobMissingError."""
        with _missing_named(key):
            return int(self._files.size(self._path(key)))

    def pieces(self, key: str, start: int, end: int) -> Iterator[bytes]:
        """Reads some bytes of a blob, a piece at a time: memory stays flat. Raises BlobMissingError.

        Args:
            end: the byte after the last.
        """
        with _missing_named(key):
            file = self._files.open(self._path(key), "rb")
        with file:
            file.seek(start)
            left = end - start
            while left > 0 and (piece := file.read(min(PIECE, left))):
                left -= len(piece)
                yield piece

    def copy(self, key: str, to: str) -> None:
        """Copies a blob, which is never changed; in a folder the two share bytes. Raises BlobMissingError."""
        source, target = self._path(key), self._path(to)
        with _missing_named(key):
            if not self.is_local:
                self._files.cp_file(source, target)
                return
            _share(Path(source), Path(target))

    def put(self, file: Path, key: str) -> None:
        """Stores a finished file that stays where it is, in a folder as ``copy`` does."""
        if self.is_local:
            _share(file, Path(self._path(key)))
        else:
            self._files.put_file(str(file), self._path(key))

    def shares_disk_with_staging(self) -> bool:
        """Returns whether what is removed here gives room to files that arrive."""
        if not self.is_local:
            return False
        try:
            return os.stat(self._root).st_dev == os.stat(self.staging).st_dev
        except FileNotFoundError:
            return False

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
        """Gives the blob as a file on this machine, for readers that need a path. Raises BlobMissingError."""
        path = self._path(key)
        if not self._files.exists(path):
            raise BlobMissingError(key)
        if self.is_local:
            yield Path(path)
            return
        with self.staged() as copy:
            self._files.get_file(path, str(copy))
            yield copy

    def sweep(self, older_than: float) -> int:
        """Removes staged files whose writer was killed; returns how many.

        older_than: seconds since the last byte. The lock decides; the age is for the moment between a file's
        making and its lock. A time in the future (the clock was set back) counts as old as it is far off.
        """
        left = [file for file in self.staging.glob("*.part") if _age(file) > older_than and _is_left(file)]
        for file in left:
            file.unlink(missing_ok=True)
        return len(left)

    def names(self, folder: str) -> set[str]:
        """Lists what lies directly below a key: of ``uploads`` and ``results`` the ids of jobs."""
        path = self._path(folder)
        self._files.invalidate_cache()  # other machines write here too
        try:
            listed = {
                str(entry).rstrip("/").rsplit("/", 1)[1] for entry in self._files.ls(path, detail=False)
            }
            return {name for name in listed if not name.startswith(".")}  # on their way, see _move
        except FileNotFoundError:
            return set()

    def sizes(self, folder: str, depth: int = 1) -> dict[str, int]:
        """Adds up the bytes that blobs below a key take on a disk, by ``depth`` more parts of their keys."""
        path = self._path(folder)
        self._files.invalidate_cache()
        sizes: dict[str, int] = {}
        for file, facts in self._files.find(path, detail=True).items():
            parts = file.split(f"{path.strip('/')}/", 1)[-1].split("/")
            name = "/".join(parts[:depth])
            sizes[name] = sizes.get(name, 0) - int(facts.get("size") or 0) // -BLOCK * BLOCK
        return sizes

    def _path(self, key: str) -> str:
        parts = PurePosixPath(key).parts
        if not parts or key.startswith("/") or ".." in parts:
            raise ValueError(f"not a blob key: {key!r}")
        return f"{self._root}/{key}"


@contextmanager
def _missing_named(key: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise BlobMissingError(key) from error


def _age(file: Path) -> float:
    try:
        return abs(time.time() - file.stat().st_mtime)
    except FileNotFoundError:
        return 0.0


def _is_left(file: Path) -> bool:
    """Returns whether no process holds the file's lock."""
    try:
        handle = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return _lock(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Takes the lock where it is free. A file system without locks has nothing but the files' age."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        return error.errno in (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)
    return True


def _move(file: Path, target: Path) -> None:
    """Renames, also to another disk: a folder that several machines mount is seldom the staging's own."""
    try:
        os.replace(file, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(file, target)
        file.unlink()


def _share(file: Path, target: Path) -> None:
    """Has a second name for a file, which is never written to again; a copy where that cannot be."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, target)
    except OSError as error:
        if error.errno not in CANNOT_LINK:
            raise
        _copy(file, target)
    _flush_directory(target.parent)


def _copy(file: Path, target: Path) -> None:
    """Copies to a hidden file beside ``target``, which takes its place once it is on the disk."""
    copy = target.with_name(f".{uuid.uuid4().hex}")
    try:
        shutil.copyfile(file, copy)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        os.replace(copy, target)
    finally:
        copy.unlink(missing_ok=True)


def _flush_directory(directory: Path) -> None:
    """Flushes a directory: a rename is on disk once its directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
