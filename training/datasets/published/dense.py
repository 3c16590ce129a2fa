"""Reads sets whose videos are captioned segment by segment: each segment is an item ``VIDEO@START-END``.

ActivityNet Captions (Krishna et al., ICCV 2017), a JSON a split: ``{"v_<YouTube id>": {"timestamps": [[0.8,
19.9], …], "sentences": ["…", …]}}``. The segments of a video overlap. Two people annotated each validation
video: ``val_1.json`` and ``val_2.json`` are both that split.

YouCook2 (Zhou, Xu, Corso, AAAI 2018): ``{"database": {"<YouTube id>": {"subset": "training", "annotations":
[{"segment": [90, 102], "sentence": "…"}, …]}}}``, a sentence for each step of a recipe.

The captions of both test splits are not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from training.datasets.caption_set import CaptionSet, Notice, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule
from training.datasets.files import AnnotationFile, MediaFiles
from training.datasets.text_files import read_json

ACTIVITYNET_FILES: tuple[tuple[Split, AnnotationFile], ...] = (
    ("val", AnnotationFile(("val_1.json",), "captions of the validation split")),
    ("val", AnnotationFile(("val_2.json",), "the second annotators' captions of it", needed=False)),
    ("train", AnnotationFile(("train.json",), "captions of the training split", needed=False)),
)
YOUCOOK2_FILE = AnnotationFile(("youcookii_annotations_trainval.json",), "steps of both splits")
SUBSETS: Mapping[str, Split] = {"training": "train", "validation": "val", "testing": "test"}


class _Sentences(BaseModel):
    timestamps: list[tuple[float, float]]
    sentences: list[str]


class _Step(BaseModel):
    segment: tuple[float, float]
    sentence: str


class _Recipe(BaseModel):
    subset: str
    annotations: list[_Step]


class _Recipes(BaseModel):
    database: dict[str, _Recipe]


def read_activitynet(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    ACTIVITYNET_FILES[0][1].require(root, ACTIVITYNET.obtain)
    media, entries, paths, notices = MediaFiles.find_below(root), list[VideoItem](), list[Path](), []
    for split, annotation in ACTIVITYNET_FILES:
        if (path := annotation.find(root)) is None:
            notices.append(Notice("no_split", f"{annotation.names[0]} is not there: no {annotation.what}."))
            continue
        paths.append(path)
        videos = read_json(path, TypeAdapter(dict[str, _Sentences]), ACTIVITYNET.obtain)
        for name, video in videos.items():
            segments = zip(video.timestamps, video.sentences, strict=False)
            entries += cut_segments(name, media.find(name), split, segments)
    return assemble(ACTIVITYNET.name, entries, str, protocol.splits, paths, notices)


def read_youcook2(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    path, media = YOUCOOK2_FILE.require(root, YOUCOOK2.obtain), MediaFiles.find_below(root)
    entries: list[VideoItem] = []
    for name, video in read_json(path, TypeAdapter(_Recipes), YOUCOOK2.obtain).database.items():
        segments = ((step.segment, step.sentence) for step in video.annotations)
        entries += cut_segments(name, media.find(name), SUBSETS.get(video.subset, "test"), segments)
    return assemble(YOUCOOK2.name, entries, str, protocol.splits, [path])


def cut_segments(
    name: str, path: Path | None, split: Split, segments: Iterable[tuple[tuple[float, float], str]]
) -> Iterator[VideoItem]:
    """Makes an item of each captioned segment of a video; one without length is none.

    Args:
        name: of the whole video.
        path: its file.
        split: that it is in.
        segments: seconds of the file, which some annotators wrote the wrong way round, and the sentence.
    """
    for seconds, sentence in segments:
        start, end = sorted(seconds)
        if 0 <= start < end:
            yield VideoItem(f"{name}@{start:g}-{end:g}", path, split, (sentence,), start, end)


ACTIVITYNET = DataSet(
    name="activitynet",
    title="ActivityNet Captions",
    annotations=tuple(annotation for _, annotation in ACTIVITYNET_FILES),
    media="v_<YouTube id>.mp4, in the folder or any folder below it",
    obtain=(
        "ActivityNet Captions' files (captions.zip) are on its authors' page (cs.stanford.edu/people/"
        "ranjaykrishna/densevid); the videos are those of ActivityNet, on YouTube by their ids. Put the JSON "
        "files and the videos into the folder."
    ),
    protocols=(PaperProtocol("krishna", {}, VocabularyRule()),),
    read=read_activitynet,
    source="ranjaykrishna/densevid_eval, which reads the files",
)
YOUCOOK2 = DataSet(
    name="youcook2",
    title="YouCook2",
    annotations=(YOUCOOK2_FILE,),
    media="<YouTube id>.mp4, in the folder or any folder below it",
    obtain=(
        "YouCook2's annotations are on its authors' page (youcook2.eecs.umich.edu), which names the YouTube "
        "videos by id. Put youcookii_annotations_trainval.json and the videos into the folder."
    ),
    protocols=(PaperProtocol("zhou", {}, VocabularyRule()),),
    read=read_youcook2,
    source="the authors' page and public loaders of its file",
)
