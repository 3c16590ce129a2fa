"""Finds the videos that ``extract`` and ``caption`` are given, and names their feature files.

A file's features are called by its stem; a file found in a folder that was given keeps its path below that
folder. Where two files would share a name, or the name is taken by another video's features from an earlier
run, eight digits made from the file's own path are added, so that no file ever writes over another one's.
"""

import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from app.errors import UsageError
from extractors.media.errors import MissingFile


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
