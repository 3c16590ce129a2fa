"""Finds a set's files: annotations by name, videos by the name that annotations give them."""

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from extractors.media.containers.container import PICTURE_SUFFIXES, VIDEO_SUFFIXES
from training.datasets.errors import AnnotationsMissing, FolderMissing

#: ``<YouTube id>_<start>_<end>``, seconds: what MSVD and VATEX call their clips.
CLIP = re.compile(r"(?P<video>.+)_(?P<start>\d+)_(?P<end>\d+)")


@dataclass(frozen=True)
class AnnotationFile:
    """An annotation file."""

    names: tuple[str, ...]  #: what it may be called, the first is its authors' name
    what: str  #: what it holds
    needed: bool = True  #: whether the set cannot be read without it

    def find(self, root: Path) -> Path | None:
        """Looks in the folder itself and at most two folders below it, for the names in their order."""
        places = (
            place
            for name in self.names
            for place in (root / name, *sorted(root.glob(f"*/{name}")), *sorted(root.glob(f"*/*/{name}")))
        )
        return next((place for place in places if place.is_file()), None)

    def require(self, root: Path, obtain: str) -> Path:
        """Finds the file. Raises FolderMissing, AnnotationsMissing with how to get it."""
        if not root.is_dir():
            raise FolderMissing(f"There is no folder {root}.", obtain)
        path = self.find(root)
        if path is None:
            raise AnnotationsMissing(f"{root} has no {' or '.join(self.names)} ({self.what}).", obtain)
        return path


@dataclass(frozen=True)
class MediaPart:
    """A file, or the seconds from ``start`` to ``end`` of one."""

    path: Path | None
    start: float | None = None
    end: float | None = None


@dataclass(frozen=True)
class MediaFiles:
    """The videos (or pictures) below a folder by their names without suffix; of equals the first by path."""

    by_stem: dict[str, Path] = field(default_factory=dict)

    @classmethod
    def find_below(cls, root: Path, suffixes: Collection[str] = VIDEO_SUFFIXES) -> Self:
        """Finds the files with such suffixes in a folder and all folders below it."""
        files: dict[str, Path] = {}
        for path in _walk(root, suffixes):
            files.setdefault(path.stem, path)
        return cls(files)

    def find(self, stem: str) -> Path | None:
        """Returns the file of that name without suffix; None where it is not there."""
        return self.by_stem.get(stem)

    def find_clip(self, name: str) -> MediaPart:
        """Returns the file of a clip ``<video>_<start>_<end>``, or that part of the whole video's file."""
        path = self.find(name)
        parts = CLIP.fullmatch(name)
        if path is not None or parts is None:
            return MediaPart(path)
        whole = self.find(parts["video"])
        start, end = float(parts["start"]), float(parts["end"])
        return MediaPart(whole, start, end) if whole is not None and end > start else MediaPart(None)


def find_pictures(root: Path) -> MediaFiles:
    """Finds the pictures in a folder and all folders below it."""
    return MediaFiles.find_below(root, PICTURE_SUFFIXES)


def _walk(root: Path, suffixes: Collection[str]) -> Iterator[Path]:
    for place, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = Path(place, name)
            if path.suffix.lower() in suffixes and not name.startswith("."):
                yield path
