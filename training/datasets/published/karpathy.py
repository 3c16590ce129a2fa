"""Karpathy's split files (Karpathy and Fei-Fei, CVPR 2015), in which Flickr8k and COCO are often handed
round: ``{"images": [{"filename", "split", "sentences": [{"raw"}]}]}``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter

from training.datasets.caption_set import Split, VideoItem
from training.datasets.files import MediaFiles
from training.datasets.text_files import read_json

#: "restval": COCO's validation pictures that are in neither of the two small splits, for training.
SPLIT_OF: dict[str, Split] = {"train": "train", "restval": "train", "val": "val", "test": "test"}


class _KarpathySentence(BaseModel):
    raw: str


class _KarpathyImage(BaseModel):
    filename: str
    split: Literal["train", "restval", "val", "test"]
    sentences: list[_KarpathySentence]


class _KarpathyDocument(BaseModel):
    images: list[_KarpathyImage]


def read_karpathy(path: Path, files: MediaFiles, hint: str) -> Iterator[VideoItem]:
    """An item a picture, called by its file's stem. Raises AnnotationsDamaged."""
    for image in read_json(path, TypeAdapter(_KarpathyDocument), hint).images:
        stem = Path(image.filename).stem
        captions = tuple(sentence.raw for sentence in image.sentences)
        yield VideoItem(stem, files.find(stem), SPLIT_OF[image.split], captions)
