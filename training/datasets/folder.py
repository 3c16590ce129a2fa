"""Reads one's own folder: videos (or pictures), beside them ``captions.json`` or ``captions.csv``.

    captions.json   [{"file": "a dog.mp4", "captions": ["a dog runs", "…"], "split": "train"}, …]
                    or {"a dog.mp4": ["a dog runs", …], …}
    captions.csv    file,caption[,split]          a row for each caption; columns in any order

``file`` is a path from the folder on. ``caption`` may stand for ``captions`` where there is one. ``id`` (by
default the file), ``split`` (train, val or test; by default train), and ``start`` and ``end`` (seconds of
the file) may be left out. A table is separated by commas, semicolons or tabs, has its columns' names in the
first row, and quotes fields with separators or line breaks, as spreadsheets write them.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from pydantic import (
    BaseModel,
    RootModel,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from training.datasets.caption_set import CaptionSet, Notice, Split, VideoItem, assemble, note
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule
from training.datasets.errors import AnnotationsDamaged
from training.datasets.files import AnnotationFile
from training.datasets.text_files import read_json, read_table

CAPTIONS = AnnotationFile(("captions.json", "captions.csv", "captions.tsv"), "your captions")
OBTAIN = (
    'Write captions.json, a list of {"file": "clip.mp4", "captions": ["a dog runs"]}, or captions.csv '
    "with the columns file and caption, beside the videos; docs/data.md has examples."
)
OTHER_MEMBERS = (
    "{n} entries have neither captions nor caption, and their other members are not read, e.g. {first}."
)
COLUMNS = {
    "file": ("file", "filename", "video", "path"),
    "caption": ("caption", "captions", "sentence", "description", "text"),
}
OPTIONAL = {"id": ("id",), "split": ("split",), "start": ("start",), "end": ("end",)}
OTHER_NAMES: Mapping[str, Split] = {"validate": "val", "validation": "val", "dev": "val"}


class FolderEntry(BaseModel, frozen=True, extra="allow"):
    """One video of the captions file."""

    file: str
    captions: tuple[str, ...] = ()
    caption: str | None = None
    id: str | int | None = None
    split: Split = "train"
    start: float | None = None
    end: float | None = None

    @field_validator("split", mode="before")
    @classmethod
    def _known_split(cls, name: object) -> object:
        return OTHER_NAMES.get(name.lower(), name.lower()) if isinstance(name, str) else name

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.file.strip():
            raise ValueError("file is empty")
        if (self.start is None) != (self.end is None):
            raise ValueError("start and end belong together")
        if self.start is not None and self.end is not None and not 0 <= self.start < self.end:
            raise ValueError("start must come before end")
        return self

    @property
    def texts(self) -> tuple[str, ...]:
        """All captions."""
        return self.captions if self.caption is None else (*self.captions, self.caption)

    def item(self, root: Path) -> VideoItem:
        """Makes the video; its path is None where the file is not there."""
        path = root / self.file
        name = self.file if self.start is None else f"{self.file}@{self.start:g}-{self.end:g}"
        name = name if self.id is None else str(self.id)
        return VideoItem(name, path if path.is_file() else None, self.split, self.texts, self.start, self.end)


class _ByFile(RootModel[dict[str, str | list[str]]]):
    """The short form: file → caption or captions."""


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged, IdsCollide."""
    path = CAPTIONS.require(root, OBTAIN)
    entries, notices = (_read_entries(path), []) if path.suffix == ".json" else _read_rows(path)
    items = [entry.item(path.parent) for entry in entries]
    named = {item.id: entry.file for item, entry in zip(items, entries, strict=True)}
    bare = [entry for entry in entries if entry.model_extra and not entry.texts]
    others = [f"{', '.join(entry.model_extra or ())} of {entry.file}" for entry in bare]
    notices = [*notices, *note("other_members", others, OTHER_MEMBERS)]
    return assemble(FOLDER.name, items, named.__getitem__, protocol.splits, [path], notices)


def _read_entries(path: Path) -> list[FolderEntry]:
    document = read_json(path, TypeAdapter(list[FolderEntry] | _ByFile), OBTAIN)
    if isinstance(document, list):
        return document
    return [
        FolderEntry(file=file, captions=(captions,) if isinstance(captions, str) else tuple(captions))
        for file, captions in document.root.items()
    ]


def _read_rows(path: Path) -> tuple[list[FolderEntry], list[Notice]]:
    """Reads a row a caption; rows of one video are joined, which is no fault here."""
    rows, notices = read_table(path, COLUMNS, OPTIONAL, OBTAIN)
    captions: dict[FolderEntry, list[str]] = {}
    for entry in _parse_rows(path, rows):
        captions.setdefault(entry.model_copy(update={"caption": None}), []).append(entry.caption or "")
    return [entry.model_copy(update={"captions": tuple(texts)}) for entry, texts in captions.items()], notices


def _parse_rows(path: Path, rows: list[dict[str, str]]) -> Iterator[FolderEntry]:
    for number, row in enumerate(rows, 2):
        values = {name: value for name, value in row.items() if value or name in COLUMNS}
        try:
            yield FolderEntry.model_validate(values)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"])) or "the row"
            raise AnnotationsDamaged(f"{path}, row {number}: {place}: {first['msg']}.", OBTAIN) from error


FOLDER = DataSet(
    name="folder",
    title="my own folder",
    annotations=(CAPTIONS,),
    media="the files that the captions name",
    obtain=OBTAIN,
    protocols=(PaperProtocol("own", {}, VocabularyRule()),),
    read=read,
    source="ours",
)
