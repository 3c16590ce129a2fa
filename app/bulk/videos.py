"""Lists the videos of a collection: a folder, a text file with a line each, or an address of a store."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import filterfalse
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import anyio

from app.bulk.storage import open_location
from app.errors import UsageError
from app.extract.inputs import find_videos
from app.fetching.fetch import FetchLimits, fetch
from extractors.media.containers.container import VIDEO_SUFFIXES

LIST_SUFFIXES = (".txt", ".lst", ".list")
WEB = ("http://", "https://")


def list_videos(source: str) -> list[str]:
    """Lists paths and addresses, each once, in the source's order.

    The source is a folder, a video, a text file (``.txt``, ``.lst``) with a path or an address (``s3://``,
    ``https://``, …) in each line, or a folder's address. Raises UsageError where there is none, or no video.
    """
    if source.startswith(WEB):
        return [source]
    if "://" in source:
        return _list_remote(source)
    if not Path(source).exists():
        raise UsageError(f"There is no file or folder called {source}.")
    if Path(source).suffix.lower() in LIST_SUFFIXES:
        return _read_list(Path(source))
    return [os.path.abspath(video.file) for video in find_videos([Path(source)], None)]


@contextmanager
def local_copy(video: str, limits: FetchLimits) -> Iterator[Path]:
    """Gives the path of a video on this machine's disk; one from elsewhere is copied and removed again.

    Raises OSError and UsageError where it cannot be read, and leaves of JobFailure where the web does not
    give it or it is larger than may be.
    """
    if "://" not in video:
        yield Path(video)
        return
    with tempfile.TemporaryDirectory(prefix="reelword-bulk-") as folder:
        suffix = PurePosixPath(urlsplit(video).path).suffix[:16]
        path = Path(folder) / f"video{suffix}"  # the video's own name may be too long for a file
        if video.startswith(WEB):
            anyio.run(fetch, video, path, limits)
        else:
            open_location(video).copy_to(path)
        yield path


def stamp_of(video: str) -> str | None:
    """Names a video's version by its size and the time of its last change, without reading it.

    None for one of the web, and where it cannot be looked at.
    """
    if video.startswith(WEB):
        return None
    try:
        if "://" not in video:
            status = os.stat(video)
            return f"{status.st_size} {status.st_mtime_ns}"
        entry = open_location(video).look()
    except (OSError, UsageError):
        return None
    return f"{entry.size} {entry.mtime_ns}" if entry.is_file else None


def digest_of_options(options: dict[str, Any], weights_sha256: str) -> str:
    """Digests what a caption depends on beside the video, so that a changed option is not passed over."""
    text = f"{sorted(options.items())} {weights_sha256}"
    return hashlib.sha256(text.encode()).hexdigest()


def _read_list(path: Path) -> list[str]:
    try:
        lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"The list {path} cannot be read: {error}.") from error
    videos = [line if "://" in line else os.path.abspath(path.parent / line) for line in lines if line]
    if not videos:
        raise UsageError(f"The list {path} names no video.")
    return list(dict.fromkeys(videos))


def _list_remote(source: str) -> list[str]:
    place = open_location(source)
    try:
        paths = [place.path] if place.look().is_file else list(filterfalse(_is_hidden, place.list_files()))
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} cannot be listed: {error}.") from error
    videos = [place.address_of(path) for path in paths if Path(path).suffix.lower() in VIDEO_SUFFIXES]
    if not videos:
        raise UsageError(f"There is no video below {source}.")
    return videos


def _is_hidden(path: str) -> bool:
    """Tells whether a name or a folder of a path begins with a dot, as leftovers of file managers do."""
    return any(part.startswith(".") for part in PurePosixPath(path).parts)
