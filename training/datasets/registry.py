"""Finds the reader of a data set by its name, and reads a part of the set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from training.datasets.caption_set import CaptionSet, Split, VideoItem, parse_split
from training.datasets.data_set import DataSet, VocabularyRule
from training.datasets.errors import UnknownDataSet
from training.datasets.folder import FOLDER
from training.datasets.published.coco import COCO
from training.datasets.published.dense import ACTIVITYNET, YOUCOOK2
from training.datasets.published.flickr8k import FLICKR8K
from training.datasets.published.msrvtt import MSRVTT
from training.datasets.published.msvd import MSVD
from training.datasets.published.mvad import MVAD
from training.datasets.published.vatex import VATEX, VATEX_CHINESE

DATA_SETS: Mapping[str, DataSet] = {
    each.name: each
    for each in (MSVD, MSRVTT, VATEX, VATEX_CHINESE, MVAD, ACTIVITYNET, YOUCOOK2, FLICKR8K, COCO, FOLDER)
}


def find_data_set(name: str) -> DataSet:
    """Finds a set by its name, whatever the case and without dashes. Raises UnknownDataSet."""
    data_set = DATA_SETS.get(name.lower().replace("-", "").replace("_", ""))
    if data_set is None:
        raise UnknownDataSet(f"There is no set called {name!r}.", f"There are: {', '.join(DATA_SETS)}.")
    return data_set


def recognise_data_set(root: Path) -> DataSet:
    """Recognises the set whose annotations lie in a folder, one's own where they are no known set's."""
    for each in DATA_SETS.values():
        if any(annotation.find(root) is not None for annotation in each.annotations if annotation.needed):
            return each
    return FOLDER


@dataclass(frozen=True)
class SetFolder:
    """A folder that a captioned set lies in."""

    root: Path
    name: str | None = None  #: of the set, by default what its files are of
    paper: str | None = None  #: whose splits
    split: str | None = None  #: by default all of them
    cache: Path = Path("data/cache")  #: where its videos' features are kept

    @property
    def data_set(self) -> DataSet:
        """The set of that name, or the one whose files lie there. Raises UnknownDataSet."""
        return recognise_data_set(self.root) if self.name is None else find_data_set(self.name)

    @property
    def rule(self) -> VocabularyRule:
        """The words that the paper's captioner knows. Raises UnknownDataSet, UnknownProtocol."""
        return self.data_set.find_protocol(self.paper).rule

    def load(self) -> CaptionSet:
        """Reads the set. Raises the leaves of DataSetError."""
        return self.data_set.load(self.root, self.paper)

    def choose_evaluated(self, captions: CaptionSet, *, media: bool = True) -> tuple[VideoItem, ...]:
        """Returns the videos of the split that is evaluated.

        Without one named it is the test split, or the validation split where there is no test split, or all.
        media: whether a video needs a file. Raises UnknownSplit, NothingToUse.
        """
        if self.split is not None:
            return captions.require(parse_split(self.split), media=media)
        has = {video.split for video in captions.require(media=media)}
        nearest: tuple[Split, ...] = ("test",) if "test" in has else ("val",) if "val" in has else ()
        return captions.require(*nearest, media=media)
