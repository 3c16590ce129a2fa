"""Lists videos at paths, in lists and at addresses of stores and the web, and brings them to this machine."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import filterfalse
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from app.errors import UsageError
from app.extract.inputs import InputVideo, find_videos

if TYPE_CHECKING:
    from app.fetching.fetch import FetchLimits

LIST_SUFFIXES = (".txt", ".lst", ".list")
WEB = ("http://", "https://")
LONGEST_NAME = 200  #: bytes of a name, and of each folder before it, in names of features


def find_inputs(sources: Sequence[str], out: Path | None) -> list[InputVideo]:
    """Finds videos at paths, as ``find_videos`` does, and of addresses and lists, as ``list_videos`` does.

    Features of an address are called as it ends, or as it goes on below the address that was given.
    """
    listed = [source for source in sources if "://" in source or _is_list(source)]
    paths = [Path(source) for source in sources if source not in listed]
    videos = find_videos(paths, out) if paths else []
    for source in listed:
        for place in list_videos(source):
            name, address = _name_features(place, source), place if "://" in place else ""
            videos.append(InputVideo(Path("/", place), name, address))
    return list({video.place: video for video in videos}.values())


def _name_features(place: str, source: str) -> str:
    """Makes a path below the folder of features, of parts that may be names of files."""
    below = place.removeprefix(f"{source.rstrip('/')}/")
    if place.startswith(WEB):
        below = PurePosixPath(unquote(urlsplit(place).path)).name
    elif below == place:
        below = place.rpartition("/")[2]
    path = PurePosixPath(below or "video").with_suffix("")
    parts = [part.replace("\0", "_") for part in path.parts if part not in ("/", "..")]
    return "/".join(part.encode()[:LONGEST_NAME].decode(errors="ignore") for part in parts) or "video"


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
    if _is_list(source):
        return _read_list(Path(source))
    return [os.path.abspath(video.file) for video in find_videos([Path(source)], None)]


@contextmanager
def local_copy(video: str, limits: "FetchLimits") -> Iterator[Path]:
    """Gives the path of a video on this machine's disk; one from elsewhere is copied and removed again.

    Raises UsageError and leaves of JobFailure where it cannot be read, or is larger than may be.
    """
    if "://" not in video:
        yield Path(video)
        return
    with tempfile.TemporaryDirectory(prefix="reelword-") as folder:
        suffix = PurePosixPath(urlsplit(video).path).suffix[:16]
        path = Path(folder) / f"video{suffix}"  # the video's own name may be too long for a file
        if video.startswith(WEB):
            import anyio  # these take long to import

            from app.fetching.fetch import fetch

            anyio.run(fetch, video, path, limits)
        else:
            from app.extract.storage import open_location  # whose packages not everyone has

            open_location(video).copy_to(path)
        yield path


def stamp_of(video: str) -> str | None:
    """Names a video's version by size and last change; None of the web, or where it cannot be looked at."""
    if video.startswith(WEB):
        return None
    try:
        if "://" not in video:
            status = os.stat(video)
            return f"{status.st_size} {status.st_mtime_ns}"
        from app.extract.storage import open_location

        entry = open_location(video).look()
    except (OSError, UsageError):
        return None
    return f"{entry.size} {entry.mtime_ns}" if entry.is_file else None


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
    from app.extract.storage import open_location
    from extractors.media.containers.container import VIDEO_SUFFIXES

    place = open_location(source)
    try:
        paths = [place.path] if place.look().is_file else list(filterfalse(_is_hidden, place.list_files()))
    except (OSError, ValueError) as error:
        raise UsageError(f"{source} cannot be listed: {error}.") from error
    videos = [place.address_of(path) for path in paths if Path(path).suffix.lower() in VIDEO_SUFFIXES]
    if not videos:
        raise UsageError(f"There is no video below {source}.")
    return videos


def _is_list(source: str) -> bool:
    return Path(source).suffix.lower() in LIST_SUFFIXES


def _is_hidden(path: str) -> bool:
    """Tells whether a name or a folder of a path begins with a dot, as leftovers of file managers do."""
    return any(part.startswith(".") for part in PurePosixPath(path).parts)
