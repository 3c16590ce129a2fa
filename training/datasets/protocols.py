"""What each paper did with a set: how many videos a split has, and which words are known.

Every rule starts from lower-cased words without punctuation. Numbers in ``printed`` are the papers' own;
ours differ from them as the tokenisers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from models.vocabulary import Vocabulary
from training.datasets.caption_set import CaptionSet, Split, words


@dataclass(frozen=True)
class VocabularyRule:
    """min_count: words seen less often in training captions are unknown. max_words: captions are cut behind
    so many. whole_set: words are counted in all splits. printed: the size that the paper gives."""

    min_count: int = 1
    max_words: int | None = None
    whole_set: bool = False
    printed: int | None = None

    def vocabulary(self, captions: CaptionSet) -> Vocabulary:
        """Of the captions that are there, whether or not their videos are."""
        videos = captions.videos if self.whole_set else captions.of("train")
        return Vocabulary.from_captions(
            self.words(caption for video in videos for caption in video.captions), min_count=self.min_count
        )

    def words(self, captions: Iterable[str]) -> Iterable[list[str]]:
        return (words(caption)[: self.max_words] for caption in captions)

    def __str__(self) -> str:
        said = ["every word" if self.min_count == 1 else f"words seen {self.min_count} times or more"]
        said += ["of all splits" if self.whole_set else "of the training split"]
        said += [f"captions cut behind {self.max_words} words"] if self.max_words else []
        return ", ".join(said)


@dataclass(frozen=True)
class Protocol:
    """paper: which of the five, or who else. splits: videos of each, as far as the paper says."""

    paper: str
    splits: Mapping[Split, int]
    rule: VocabularyRule


def splits(train: int, val: int, test: int) -> dict[Split, int]:
    return {"train": train, "val": val, "test": test}
