"""Reads captions from files, in the forms that scorers of captions exchange, and writes them so.

    [{"image_id": 42, "caption": "a dog runs"}, …]        COCO's results; references below "annotations"
    {"video7010": "a dog runs", …}                        VATEX' submission; with lists, references
    {"file": "a.mp4", "captions": ["a dog runs", …]}      one's own captions.json; in .jsonl a line each

An item may be named by ``image_id``, ``video_id``, ``videoID``, ``id`` or ``file``; of a published set the
references are read from its folder, too.
"""

import json
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, Field, TypeAdapter

from extractors.files import atomic_write
from training.datasets.errors import AnnotationsDamaged, FolderMissing, NothingToUse
from training.datasets.registry import SetFolder
from training.datasets.text_files import parse_json, read_text

#: How captions are written: COCO's results, or VATEX' submission.
CaptionsForm = Literal["coco", "vatex"]
HINT = "docs/training.md, Scores of files, shows the forms."
NAMES = ("image_id", "video_id", "videoID", "id", "file")


def _list_texts(captions: str | list[str]) -> list[str]:
    return [captions] if isinstance(captions, str) else captions


Texts = Annotated[str | list[str], AfterValidator(_list_texts)]


class _Entry(BaseModel, coerce_numbers_to_str=True):
    """One caption of an item, or all of them."""

    name: str = Field(validation_alias=AliasChoices(*NAMES))
    captions: Texts = Field(validation_alias=AliasChoices("caption", "captions", "enCap", "chCap"))


class _Annotated(BaseModel):
    """COCO's references, or MSR-VTT's."""

    annotations: list[_Entry] = Field(validation_alias=AliasChoices("annotations", "sentences"))


_Document = TypeAdapter[list[_Entry] | _Annotated | dict[str, Texts]](
    list[_Entry] | _Annotated | dict[str, Texts]
)
_LINE = TypeAdapter(_Entry)


def read_results(path: Path, items: Container[str] = ()) -> dict[str, str]:
    """Reads one caption of each item: id → caption.

    items: the items' ids; a caption may name an item's file, with its folder and suffix. Raises
    AnnotationsDamaged where the file has another form, or an item several captions.
    """
    captions: dict[str, list[str]] = {}
    for name, texts in _read_captions(path).items():
        names = (name, Path(name).name, Path(name).stem)
        captions.setdefault(next((each for each in names if each in items), name), []).extend(texts)
    several = next((name for name, texts in captions.items() if len(texts) != 1), None)
    if several is not None:
        count = len(captions[several])
        raise AnnotationsDamaged(f"{path} has {count} captions of {several}, and one is scored.", HINT)
    return {name: texts[0] for name, texts in captions.items()}


def read_references(path: Path, data_set: str | None = None) -> dict[str, list[str]]:
    """Reads what people wrote of each item, id → captions, from a file or from a captioned set's folder.

    data_set: the set's name, by default what the folder's files are of. Raises the leaves of DataSetError.
    """
    if path.is_dir():
        videos = SetFolder(path, data_set).load().videos
        return {video.id: list(video.captions) for video in videos if video.captions}
    return _read_captions(path)


def _read_captions(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        raise FolderMissing(f"There is no {path}.", HINT)
    text = read_text(path)
    if {".jsonl", ".ndjson"} & set(path.suffixes):
        lines = enumerate(text.splitlines(), 1)
        entries = [parse_json(f"{path}, line {n}", line, _LINE, HINT) for n, line in lines if line.strip()]
    else:
        document = parse_json(str(path), text, _Document, HINT)
        if isinstance(document, dict):
            return {name: list(texts) for name, texts in document.items()}
        entries = document if isinstance(document, list) else document.annotations
    captions: dict[str, list[str]] = {}
    for entry in entries:
        captions.setdefault(entry.name, []).extend(entry.captions)
    return captions


def match_references(
    captions: Mapping[str, str], references: Mapping[str, list[str]]
) -> dict[str, list[str]]:
    """Returns the references of the items that have a caption, in the captions' order.

    Raises NothingToUse where there is no caption, or an item of one has no reference.
    """
    bare = next((name for name in captions if not references.get(name)), None)
    if bare is not None:
        examples = ", ".join(list(references)[:3])
        raise NothingToUse(f"{bare} has a caption and no reference; references are of {examples} …", HINT)
    if not captions:
        raise NothingToUse("There is no caption to score.", HINT)
    return {name: references[name] for name in captions}


def write_results(path: Path, captions: Mapping[str, str], form: CaptionsForm = "coco") -> None:
    """Writes captions as COCO's results or VATEX' submission.

    Args:
        path: the file.
        captions: id → caption; ids that are numbers are written as such into COCO's results.
        form: one of the two.
    """
    rows = [{"image_id": _as_number(name), "caption": text} for name, text in captions.items()]
    document = dict(captions) if form == "vatex" else rows
    with atomic_write(path) as unfinished:
        unfinished.write_text(json.dumps(document, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def _as_number(name: str) -> int | str:
    """Returns the number that a name spells, as COCO's ids do; pycocotools looks for numbers."""
    return int(name) if name.isdecimal() and str(int(name)) == name else name
