"""Reads VATEX (Wang et al., ICCV 2019): clips of ten seconds from Kinetics-600 with ten English captions.

Each JSON is a list of ``{"videoID": "<YouTube id>_<start>_<end>", "enCap": […], "chCap": […]}``, start and
end with six digits. The Chinese captions are not read: words here are Latin letters. Clips are looked for by
their ``videoID``; where only the whole YouTube video is there (``<YouTube id>.mp4``), the seconds from start
to end of it are meant.

The authors have 25,991 / 3,000 / 6,000 clips in training, validation and public test; the videos disappear,
and the fusion paper could still get 25,442 / 2,933 / 5,781.
"""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from training.datasets.caption_set import CaptionSet, Notice, Split, VideoItem, assemble
from training.datasets.data_set import DataSet, PaperProtocol, VocabularyRule, make_splits
from training.datasets.files import AnnotationFile, MediaFiles
from training.datasets.text_files import read_json

ANNOTATIONS: dict[Split, AnnotationFile] = {
    "train": AnnotationFile(("vatex_training_v1.0.json",), "captions of the training split"),
    "val": AnnotationFile(("vatex_validation_v1.0.json",), "captions of the validation split", needed=False),
    "test": AnnotationFile(
        ("vatex_public_test_english_v1.1.json",), "English captions of the public test split", needed=False
    ),
}
OBTAIN = (
    "VATEX' captions are on its authors' page (eric-xw.github.io/vatex-website), which names the "
    "YouTube videos by id; those that are gone stay missing. Put the JSON files and the clips into the "
    "folder."
)


class _VatexVideo(BaseModel):
    videoID: str  # noqa: N815 - the file's own name
    enCap: list[str]  # noqa: N815


def read(root: Path, protocol: PaperProtocol) -> CaptionSet:
    """Reads the set in a folder. Raises FolderMissing, AnnotationsMissing, AnnotationsDamaged."""
    paths: dict[Split, Path] = {"train": ANNOTATIONS["train"].require(root, OBTAIN)}
    notices = []
    for split, annotation in ANNOTATIONS.items():
        file = annotation.find(root)
        if file is not None:
            paths[split] = file
        else:
            notices.append(Notice("no_split", f"{annotation.names[0]} is not there: no {split} split."))
    files = MediaFiles.find_below(root)
    entries = [entry for split, path in paths.items() for entry in _read_entries(path, split, files)]
    return assemble(VATEX.name, entries, "{}.mp4".format, protocol.splits, list(paths.values()), notices)


def _read_entries(path: Path, split: Split, files: MediaFiles) -> Iterator[VideoItem]:
    for video in read_json(path, TypeAdapter(list[_VatexVideo]), OBTAIN):
        clip = files.find_clip(video.videoID)
        yield VideoItem(video.videoID, clip.path, split, tuple(video.enCap), clip.start, clip.end)


VATEX = DataSet(
    name="vatex",
    title="VATEX",
    annotations=tuple(ANNOTATIONS.values()),
    media="<videoID>.mp4 or the whole <YouTube id>.mp4, in the folder or any folder below it",
    obtain=OBTAIN,
    protocols=(PaperProtocol("fusion", make_splits(25442, 2933, 5781), VocabularyRule()),),
    read=read,
    source="the authors' page and public loaders of its files; the paper gives no rule for words",
)
