"""Reads COCO captions (Chen et al., 2015): pictures with five captions each.

The official ``captions_train2014.json`` and ``captions_val2014.json`` (or 2017) hold ``images`` with ``id``
and ``file_name``, and ``annotations`` with ``image_id`` and ``caption``. Or Karpathy's
``dataset_coco.json``, whose 5,000 / 5,000 pictures for validation and test most papers report on; Flickr8k
is handed round in the same form: ``{"images": [{"filename", "split", "sentences": [{"raw"}]}]}``
(Karpathy and Fei-Fei, CVPR 2015).
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, TypeAdapter

from training.datasets.caption_set import CaptionSet, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.files import AnnotationFile, MediaFiles, find_pictures
from training.datasets.text_files import read_json

TRAIN = AnnotationFile(
    ("dataset_coco.json", "captions_train2014.json", "captions_train2017.json"), "captions, for training"
)
VAL = AnnotationFile(
    ("dataset_coco.json", "captions_val2014.json", "captions_val2017.json"), "captions, for validation", False
)
OBTAIN = (
    "COCO's captions and pictures are on the page of the COCO Consortium (cocodataset.org, under "
    "Download): put the folders annotations, train2014 and val2014 (or 2017) into the folder."
)


#: How many pictures the official splits have.
YEARS: dict[str, dict[Split, int]] = {
    "2014": {"train": 82783, "val": 40504},
    "2017": {"train": 118287, "val": 5000},
}


class _CocoImage(BaseModel):
    id: int | str
    file_name: str


class _Annotation(BaseModel):
    image_id: int | str
    caption: str


class _CocoDocument(BaseModel):
    images: list[_CocoImage]
    annotations: list[_Annotation]


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    path, files = TRAIN.require(root, OBTAIN), find_pictures(root)
    paths, expected = [path], dict(protocol.splits)
    if path.name == TRAIN.names[0]:
        entries = list(read_karpathy(path, files, OBTAIN))
    else:
        year = path.stem[-4:]
        expected = YEARS[year]
        entries = list(_read_official(path, "train", files))
        val = AnnotationFile((f"captions_val{year}.json",), "captions, for validation").find(root)
        if val is not None:
            paths.append(val)
            entries += _read_official(val, "val", files)
    return assemble(COCO.name, entries, "{}.jpg".format, expected, paths)


def _read_official(path: Path, split: Split, files: MediaFiles) -> Iterator[VideoItem]:
    document = read_json(path, TypeAdapter(_CocoDocument), OBTAIN)
    captions: dict[int | str, list[str]] = defaultdict(list)
    for annotation in document.annotations:
        captions[annotation.image_id].append(annotation.caption)
    for image in document.images:
        stem = Path(image.file_name).stem
        yield VideoItem(stem, files.find(stem), split, tuple(captions[image.id]))


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
    """Yields an item for each picture of Karpathy's file, called by its file's stem.

    Args:
        path: Karpathy's file.
        files: the pictures that are there.
        hint: what to do where the file is damaged.

    Raises:
        AnnotationsDamaged: the file has another form.
    """
    for image in read_json(path, TypeAdapter(_KarpathyDocument), hint).images:
        stem = Path(image.filename).stem
        captions = tuple(sentence.raw for sentence in image.sentences)
        yield VideoItem(stem, files.find(stem), SPLIT_OF[image.split], captions)


COCO = DataSet(
    name="coco",
    title="COCO captions",
    annotations=(TRAIN, VAL),
    media="the pictures under their own names, in the folder or any folder below it (train2014, val2014)",
    obtain=OBTAIN,
    protocols=(PaperProtocol("karpathy", make_splits(113287, 5000, 5000), VocabularyRule(min_count=5)),),
    read=read,
    source="the official files themselves; public loaders of Karpathy's file",
)
