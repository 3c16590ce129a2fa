"""Finds the videos that commands are given, in folders, lists, stores and on the web, and names their files.

A file's features are called by its stem; a file found in a folder that was given keeps its path below that
folder. Where two files would share a name, or the name is taken by another video's features from an earlier
run, eight digits made from the file's own path are added, so that no file ever writes over another one's.
"""

import glob
import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import filterfalse
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

from app.errors import UsageError
from extractors.media.errors import MissingFile

if TYPE_CHECKING:
    from app.fetching.fetch import FetchLimits


LIST_SUFFIXES = (".txt", ".lst", ".list")
WEB = ("http://", "https://")
LONGEST_NAME = 200  #: bytes of a name, and of each folder before it, in names of features


@dataclass(frozen=True)
class InputVideo:
    """Holds a video and the name of its features, with slashes where it lay deeper than the folder given."""

    file: Path  #: of one that is elsewhere, its address behind a slash
    name: str
    address: str = ""  #: where it is fetched from

    def __str__(self) -> str:
        return self.place

    @property
    def place(self) -> str:
        """Returns what its user called it."""
        return self.address or str(self.file)

    @property
    def key(self) -> str:
        """Returns the name as file systems without case compare it: equal where two would be one file."""
        return self.name.lower()

    @property
    def apart(self) -> Self:
        """Returns the same video by a name that no other one has."""
        from extractors.video_features.feature_files import path_digest

        return replace(self, name=f"{self.name}-{path_digest(self.file)}")


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


def find_videos(paths: Sequence[Path], out: Path | None) -> list[InputVideo]:
    """Finds files as they are given, and those in folders to the bottom, each once.

    Nothing that is heavy to import is needed for it, so that a missing file is refused before models load.

    paths: files, folders, and patterns that the shell has not replaced. Raises MissingFile: one of them is
    not there; UsageError: there is no video.
    """
    videos: dict[str, InputVideo] = {}
    for path in (each for pattern in paths for each in _expand(pattern)):
        for each in _below(path, out) if path.is_dir() else [InputVideo(path, path.stem)]:
            videos.setdefault(os.path.abspath(each.file), each)
    if not videos:
        raise UsageError(f"There is no video in {', '.join(str(path) for path in paths)}.")
    return list(videos.values())


def _expand(path: Path) -> list[Path]:
    if path.exists():
        return [path]
    matches = sorted(Path(each) for each in glob.iglob(str(path), recursive=True))
    if not matches and path.parts[0].endswith(":"):
        address = str(path).replace(":/", "://", 1)
        raise UsageError(
            f"{address} is an address, and only files are taken here: caption takes addresses where it asks "
            "a service, extract and bulk always."
        )
    if not matches:
        raise MissingFile(f"There is no file or folder called {path}.")
    return matches


def _below(folder: Path, out: Path | None) -> Iterator[InputVideo]:
    from extractors.media.containers.container import VIDEO_SUFFIXES

    left_out = None if out is None else Path(os.path.abspath(out))
    for place, folders, files in os.walk(folder):
        inner = Path(place)
        folders[:] = sorted(
            name for name in folders if name[0] != "." and Path(os.path.abspath(inner / name)) != left_out
        )
        for name in sorted(files):
            file = inner / name
            if name[0] != "." and file.suffix.lower() in VIDEO_SUFFIXES:
                yield InputVideo(file, file.relative_to(folder).with_suffix("").as_posix())


def make_folder(folder: Path) -> None:
    """Makes a folder where it is not there. Raises UsageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"The folder {folder} cannot be made: {error.strerror}.") from error


def name_apart(inputs: Sequence[InputVideo], owner: Callable[[InputVideo], str | None]) -> list[InputVideo]:
    """Renames inputs whose names are not theirs alone. owner: "own", "other", or None for no features."""
    shared = Counter(each.key for each in inputs)
    claimed: set[str] = set()
    renamed: dict[InputVideo, InputVideo] = {}
    # those that own their names already come first, so that a second run finds what the first one made
    for each in sorted(inputs, key=lambda each: owner(each) != "own" if shared[each.key] > 1 else False):
        is_free = owner(each) != "other" and each.key not in claimed
        renamed[each] = each if is_free else each.apart
        claimed.add(renamed[each].key)
    return [renamed[each] for each in inputs]


def choose_names(videos: Sequence[InputVideo]) -> list[InputVideo]:
    """Names videos for their pictures: as they are, or name-2 … where that is taken, in any case."""
    named: dict[str, InputVideo] = {}
    for video in videos:
        name, number = video.name, 1
        while name.lower() in named:
            number += 1
            name = f"{video.name}-{number}"
        named[name.lower()] = replace(video, name=name)
    return list(named.values())


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
