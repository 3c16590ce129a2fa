"""Describes captioned sets: annotation files, who used a set how, which words are known, where to get it.

Every rule of words starts from lower-cased words without punctuation. Numbers in ``printed`` are the papers'
own; ours differ from them as the tokenisers do.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from models.vocabulary import Vocabulary
from training.datasets.caption_set import SPLITS, CaptionSet, Split
from training.datasets.errors import UnknownProtocol
from training.datasets.files import AnnotationFile


@dataclass(frozen=True)
class VocabularyRule:
    """Limits which words are known."""

    min_count: int = 1  #: words seen less often in training captions are unknown
    max_words: int | None = None  #: captions are cut after so many
    whole_set: bool = False  #: words are counted in all splits
    printed: int | None = None  #: the size that the paper gives

    def build_vocabulary(self, captions: CaptionSet) -> Vocabulary:
        """Builds the vocabulary of the captions that are there, whether or not their videos are."""
        videos = captions.videos if self.whole_set else captions.in_split("train")
        return Vocabulary.from_captions(
            (
                video.split_caption(caption)[: self.max_words]
                for video in videos
                for caption in video.captions
            ),
            min_count=self.min_count,
        )

    def __str__(self) -> str:
        parts = ["every word" if self.min_count == 1 else f"words seen {self.min_count} times or more"]
        parts += ["of all splits" if self.whole_set else "of the training split"]
        parts += [f"captions cut after {self.max_words} words"] if self.max_words else []
        return ", ".join(parts)


@dataclass(frozen=True)
class PaperProtocol:
    """A paper's use of a set."""

    paper: str  #: one of the five, or another name
    splits: Mapping[Split, int]  #: videos of each
    rule: VocabularyRule


def make_splits(*videos: int) -> dict[Split, int]:
    """Returns how many videos the splits have: train, val and test."""
    return dict(zip(SPLITS, videos, strict=True))


ReadSet: TypeAlias = Callable[[Path, PaperProtocol], CaptionSet]


@dataclass(frozen=True)
class DataSet:
    """A captioned set."""

    name: str
    title: str  #: its full name
    annotations: tuple[AnnotationFile, ...]  #: what has to lie in its folder
    media: str  #: where videos or pictures are looked for, in words
    obtain: str  #: how to get it, a sentence
    protocols: tuple[PaperProtocol, ...]  #: the first is the default
    read: ReadSet  #: the set in a folder, raises DataSetError
    source: str  #: where its form was looked up

    def find_protocol(self, paper: str | None = None) -> PaperProtocol:
        """Finds how a paper used the set, by default the first that did. Raises UnknownProtocol."""
        if paper is None:
            return self.protocols[0]
        for protocol in self.protocols:
            if protocol.paper == paper:
                return protocol
        papers = ", ".join(each.paper for each in self.protocols)
        raise UnknownProtocol(f"{paper!r} did not use {self.title}; choose one of: {papers}.")

    def load(self, root: Path, paper: str | None = None) -> CaptionSet:
        """Reads the set in a folder, as a paper used it. Raises the leaves of DataSetError."""
        return self.read(root, self.find_protocol(paper))
