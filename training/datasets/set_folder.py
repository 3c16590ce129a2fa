"""A folder and what is to be taken of the set in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from training.datasets.caption_set import CaptionSet, Split, VideoItem, split_of
from training.datasets.data_set import DataSet
from training.datasets.protocols import VocabularyRule
from training.datasets.registry import data_set, recognised


@dataclass(frozen=True)
class SetFolder:
    """name: of the set, by default what its files tell. paper: whose splits. split: by default all of them.

    cache: where its videos' features are kept.
    """

    root: Path
    name: str | None = None
    paper: str | None = None
    split: str | None = None
    cache: Path = Path("data/cache")

    @property
    def data_set(self) -> DataSet:
        """Raises UnknownDataSet."""
        return recognised(self.root) if self.name is None else data_set(self.name)

    @property
    def rule(self) -> VocabularyRule:
        """Which words the paper's captioner knows. Raises UnknownDataSet, UnknownProtocol."""
        return self.data_set.protocol(self.paper).rule

    def load(self) -> CaptionSet:
        """Raises the leaves of DataSetError."""
        return self.data_set.load(self.root, self.paper)

    def to_judge(self, captions: CaptionSet) -> tuple[VideoItem, ...]:
        """Those of the split; without one of the test split, or of the validation split where there is no
        test split, or all. Raises UnknownSplit, NothingToUse."""
        if self.split is not None:
            return captions.require(split_of(self.split))
        has = {video.split for video in captions.usable}
        nearest: tuple[Split, ...] = ("test",) if "test" in has else ("val",) if "val" in has else ()
        return captions.require(*nearest)
