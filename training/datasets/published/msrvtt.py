"""Reads MSR-VTT (Xu et al., CVPR 2016): 10,000 clips of 10 to 30 seconds with 20 captions each.

Two JSON files of one form: ``videos`` with ``video_id`` ("video0" to "video9999"), ``category`` and
``split`` ("train", "validate", "test"), and ``sentences`` with ``video_id`` and ``caption``. ``start time``
and ``end time`` are those of the clip in the YouTube video: the files that are handed round are cut already.
The challenge of 2017 gave the 10,000 clips as videodatainfo_2017.json, and clips to be captioned without
captions as test_videodatainfo_2017.json, which have no sentences.

``category`` is the clip's place among twenty kinds of videos, from 0 on, which STaTS may be told.

Papers split it differently. G2L keeps the split of the files (6,513 / 497 / 2,990) and so do we for STaTS,
whose "10K training and 2990 test" is the whole set. Refocus takes three contiguous parts, 6,512 / 498 /
2,990. dualAFR had no captions of the test split and took 5,513 for training and 1,000 for testing out of the
training split; it does not say which: here the last 1,000.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field, TypeAdapter

from training.datasets.caption_set import CaptionSet, Notice, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.files import AnnotationFile, MediaFiles
from training.datasets.text_files import read_json

TRAIN_VAL = AnnotationFile(
    ("train_val_videodatainfo.json", "videodatainfo_2017.json", "MSRVTT_data.json"),
    "captions of the training and validation split",
)
TEST = AnnotationFile(
    ("test_videodatainfo.json", "test_videodatainfo_2017.json"), "captions of the test split", needed=False
)
OBTAIN = (
    "MSR-VTT is given by Microsoft Research to who asks for it (the MSR Video to Language challenge of "
    "2016 and 2017): put train_val_videodatainfo.json and test_videodatainfo.json, or their 2017 namesakes "
    "videodatainfo_2017.json and test_videodatainfo_2017.json, with the folders TrainValVideo and TestVideo "
    "into the folder."
)


class _MsrvttVideo(BaseModel):
    video_id: str
    split: Literal["train", "validate", "val", "test"]
    category: int | None = None
    start: float | None = Field(None, alias="start time")
    end: float | None = Field(None, alias="end time")

    @property
    def duration(self) -> float | None:
        """Seconds of the clip, whose times are those of the YouTube video that it was cut from."""
        return None if self.start is None or self.end is None else round(self.end - self.start, 3)


class _MsrvttSentence(BaseModel):
    video_id: str
    caption: str


class _MsrvttDocument(BaseModel):
    videos: list[_MsrvttVideo]
    sentences: list[_MsrvttSentence] = []


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    paths = [TRAIN_VAL.require(root, OBTAIN)]
    test = TEST.find(root)
    notices = []
    if test is not None:
        paths.append(test)
    elif paths[0].name == TRAIN_VAL.names[0]:
        notices.append(Notice("no_split", f"{TEST.names[0]} is not there: no test split."))
    documents = [read_json(path, TypeAdapter(_MsrvttDocument), OBTAIN) for path in paths]
    captions: dict[str, list[str]] = defaultdict(list)
    for document in documents:
        for sentence in document.sentences:
            captions[sentence.video_id].append(sentence.caption)
    files = MediaFiles.find_below(root)
    chosen = _choose_splits([video for document in documents for video in document.videos], protocol.paper)
    listed = {video.video_id: video for document in documents for video in document.videos}
    entries = [
        VideoItem(
            name,
            files.find(name),
            split,
            tuple(captions[name]),
            category=listed[name].category,
            duration=listed[name].duration,
        )
        for name, split in chosen.items()
    ]
    return assemble(MSRVTT.name, entries, "{}.mp4".format, protocol.splits, paths, notices)


def _choose_splits(videos: Sequence[_MsrvttVideo], paper: str) -> Mapping[str, Split]:
    """Returns video → split as the paper has it, in the order of the videos' numbers."""
    ordered = sorted({video.video_id: video for video in videos}.values(), key=_parse_number)
    if paper == "refocus":
        return {video.video_id: _split_by_number(_parse_number(video)[0]) for video in ordered}
    official = {each.video_id: "val" if each.split == "validate" else each.split for each in ordered}
    if paper != "dual_afr":
        return official
    training = [name for name, split in official.items() if split == "train"]
    last = set(training[5513:])
    return {name: "test" if name in last else split for name, split in official.items() if split != "test"}


def _parse_number(video: _MsrvttVideo) -> tuple[int, str]:
    digits = video.video_id.removeprefix("video")
    return (int(digits) if digits.isdecimal() else 0), video.video_id


def _split_by_number(number: int) -> Split:
    return "train" if number < 6512 else "val" if number < 7010 else "test"


MSRVTT = DataSet(
    name="msrvtt",
    title="MSR-VTT",
    annotations=(TRAIN_VAL, TEST),
    media="video0.mp4 to video9999.mp4, in the folder or any folder below it (TrainValVideo, TestVideo)",
    obtain=OBTAIN,
    protocols=(
        PaperProtocol("g2l", make_splits(6513, 497, 2990), VocabularyRule(min_count=2, printed=13491)),
        PaperProtocol("stats", make_splits(6513, 497, 2990), VocabularyRule()),
        PaperProtocol("refocus", make_splits(6512, 498, 2990), VocabularyRule(min_count=3, max_words=15)),
        PaperProtocol("dual_afr", make_splits(5513, 497, 1000), VocabularyRule(printed=8071)),
    ),
    read=read,
    source="public loaders of the two files; counts: danieljf24/hybrid_space, dataset/README.md",
)
