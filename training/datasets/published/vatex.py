"""Reads VATEX (Wang et al., ICCV 2019): clips of ten seconds from Kinetics-600, ten captions a language.

Each JSON is a list of ``{"videoID": "<YouTube id>_<start>_<end>", "enCap": […], "chCap": […]}``, start and
end with six digits; the English captions are one set, the Chinese another. Clips are looked for by their
``videoID``; where only the whole YouTube video is there (``<YouTube id>.mp4``), the seconds from start to end
of it are meant.

The authors have 25,991 / 3,000 / 6,000 clips in training, validation and public test; the videos disappear,
and the fusion paper could still get 25,442 / 2,933 / 5,781. The Chinese captions of the test are not
published. Both languages' captions are cut after 30 words, and words seen less than five times are unknown
(the paper's supplement, section A): some 11,000 English words, and 14,000 Chinese ones of segmented text.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import BaseModel, Field, TypeAdapter

from training.datasets.caption_set import SPLITS, CaptionSet, Notice, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.files import AnnotationFile, MediaFiles
from training.datasets.text_files import read_json

TRAIN = AnnotationFile(("vatex_training_v1.0.json",), "captions of the training split")
VALIDATION = AnnotationFile(("vatex_validation_v1.0.json",), "captions of the validation split", needed=False)
TEST = AnnotationFile(
    ("vatex_public_test_english_v1.1.json",), "English captions of the public test split", needed=False
)
OBTAIN = (
    "VATEX' captions are on its authors' page (eric-xw.github.io/vatex-website), which names the "
    "YouTube videos by id; those that are gone stay missing. Put the JSON files and the clips into the "
    "folder."
)


class _VatexVideo(BaseModel):
    videoID: str  # noqa: N815 - the file's own name
    captions: list[str] = Field(alias="enCap")


class _ChineseVideo(_VatexVideo):
    captions: list[str] = Field(alias="chCap")


ENGLISH = TypeAdapter[Sequence[_VatexVideo]](Sequence[_VatexVideo])
CHINESE = TypeAdapter[Sequence[_VatexVideo]](Sequence[_ChineseVideo])


def read(
    root: Path, protocol: PaperProtocol, form: TypeAdapter[Sequence[_VatexVideo]] = ENGLISH
) -> CaptionSet:
    """Reads the captions of a language in a folder.

    Args:
        root: the folder.
        protocol: whose splits and words.
        form: of the annotations, which names the language.

    Raises:
        FolderMissing, AnnotationsMissing, AnnotationsDamaged, PackageMissing: as other sets do.
    """
    chosen = VATEX if form is ENGLISH else VATEX_CHINESE
    paths: dict[Split, Path] = {"train": TRAIN.require(root, OBTAIN)}
    notices = []
    for split, annotation in zip(SPLITS, chosen.annotations, strict=False):
        file = annotation.find(root)
        if file is not None:
            paths[split] = file
        else:
            notices.append(Notice("no_split", f"{annotation.names[0]} is not there: no {split} split."))
    files = MediaFiles.find_below(root)
    entries = [
        VideoItem(video.videoID, clip.path, split, tuple(video.captions), clip.start, clip.end)
        for split, path in paths.items()
        for video in read_json(path, form, OBTAIN)
        for clip in [files.find_clip(video.videoID)]
    ]
    return assemble(chosen.name, entries, "{}.mp4".format, protocol.splits, list(paths.values()), notices)


AS_PUBLISHED = PaperProtocol(
    "vatex", make_splits(25991, 3000, 6000), VocabularyRule(min_count=5, max_words=30, printed=11000)
)
VATEX = DataSet(
    name="vatex",
    title="VATEX",
    annotations=(TRAIN, VALIDATION, TEST),
    media="<videoID>.mp4 or the whole <YouTube id>.mp4, in the folder or any folder below it",
    obtain=OBTAIN,
    protocols=(PaperProtocol("fusion", make_splits(25442, 2933, 5781), VocabularyRule()), AS_PUBLISHED),
    read=read,
    source="the authors' page and public loaders of its files; the fusion paper gives no rule for words",
)
VATEX_CHINESE = replace(
    VATEX,
    name="vatexzh",
    title="VATEX in Chinese",
    annotations=(TRAIN, VALIDATION),
    protocols=(
        replace(
            AS_PUBLISHED,
            splits={"train": 25991, "val": 3000},
            rule=replace(AS_PUBLISHED.rule, printed=14000),
        ),
    ),
    read=partial(read, form=CHINESE),
)
