"""Reads captioned pictures and videos as one list of items, whatever set they come from.

Two JSON forms are read (plain or gzip): COCO's ``{"images", "annotations"}``, which Flickr8k comes
in too, and MSR-VTT's ``{"videos", "annotations"}`` whose videos list their frames in time order.
Pictures lie in a tar or a folder under the names the JSON gives.
"""

import gzip
import io
import json
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from extractors.errors import ReelwordError
from models.vocabulary import split_words


class CorpusError(ReelwordError, ValueError, code="corpus_damaged"):
    """A caption file or picture archive is not what it should be; the message says what to do."""

    hint = "docs/data.md says what caption files and archives look like."


@dataclass(frozen=True)
class ArchiveItem:
    """One captioned picture (one file) or video (its frames in time order)."""

    id: str
    files: tuple[str, ...]
    captions: tuple[str, ...]
    split: str


def read_items(captions: Path, split: str | None = None) -> list[ArchiveItem]:
    """Reads the items that have captions, in the file's order; ``split`` keeps one of the splits.

    Raises CorpusError where the file has neither form or the split is empty.
    """
    opener = gzip.open if captions.suffix == ".gz" else open
    with opener(captions, "rt", encoding="utf-8") as file:
        document = json.load(file)
    if not isinstance(document, dict) or not ({"images", "videos"} & document.keys()):
        raise CorpusError(
            f'{captions} holds neither "images" nor "videos" with "annotations"; see docs/training.md'
        )
    items = list(_parse_items(document, captions.name.split("_")[0]))
    chosen = [item for item in items if split is None or item.split == split]
    if not chosen:
        splits = ", ".join(sorted({item.split for item in items}))
        raise CorpusError(f"{captions} has no captioned item of split {split!r}; it has: {splits}")
    return chosen


def _parse_items(document: dict[str, Any], prefix: str) -> Iterator[ArchiveItem]:
    is_video = "videos" in document
    by_owner: dict[Any, list[str]] = defaultdict(list)
    for annotation in document["annotations"]:
        by_owner[annotation["video_id" if is_video else "image_id"]].append(annotation["caption"])
    for entry in document["videos" if is_video else "images"]:
        files = [f["file_name"] for f in entry["frames"]] if is_video else [entry["file_name"]]
        captions = tuple(c for c in by_owner[entry["id"]] if split_words(c))
        if captions:
            yield ArchiveItem(f"{prefix}/{entry['id']}", tuple(files), captions, entry.get("split", "train"))


def read_pictures(archive: Path, names: Sequence[str]) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yields (name, uint8 RGB (H, W, 3)) for every name, in the archive's order.

    Raises CorpusError when the archive lacks one of the names.
    """
    missing = set(names)
    reader = _from_folder if archive.is_dir() else _from_tar
    for name, data in reader(archive, missing):
        missing.discard(name)
        with Image.open(io.BytesIO(data)) as image:
            yield name, np.asarray(image.convert("RGB"))
    if missing:
        raise CorpusError(
            f"{archive} lacks {len(missing)} pictures that the captions name, e.g. {min(missing)}"
        )


def _from_folder(folder: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    for name in sorted(wanted):
        if (folder / name).is_file():
            yield name, (folder / name).read_bytes()


def _from_tar(path: Path, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as tar:
        for member in tar:
            name = Path(member.name).name
            if member.isfile() and name in wanted:
                file = tar.extractfile(member)
                if file is not None:
                    yield name, file.read()
