"""Turns words into ids and back. Ids 0 to 2 are the same in every checkpoint; words follow by frequency."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import torch
from torch import Tensor

EOS, BOS, UNK = 0, 1, 2
SPECIALS = ("<eos>", "<bos>", "<unk>")
_WORD = re.compile(r"[a-z0-9]+|'(?:s|re|ve|ll|d|m|t)\b")
_ACCENTS = dict.fromkeys(range(0x300, 0x370))


def split_words(caption: str, fold_accents: bool = False) -> list[str]:
    """Splits a caption into lower-case words without punctuation, ``man's`` as ``man 's``.

    The words are like the COCO code's tokens. With ``fold_accents`` accents are taken off letters first, so
    that "Café" is "cafe"; without it other letters than a to z end a word.
    """
    if fold_accents:
        caption = unicodedata.normalize("NFKD", caption).translate(_ACCENTS)
    return _WORD.findall(caption.lower())


class Vocabulary:
    """Numbers a fixed list of words. Shipped inside the checkpoint, so that the two can never disagree."""

    def __init__(self, words: Sequence[str]) -> None:
        """words: without the specials, most frequent first."""
        self.words = (*SPECIALS, *words)
        self._ids = {word: i for i, word in enumerate(self.words)}
        if len(self._ids) != len(self.words):
            raise ValueError("a vocabulary holds every word once")

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Looks up ids, without <bos> and <eos>; unknown words become <unk>."""
        return [self._ids.get(token, UNK) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """Looks up the words of ids up to, and without, the first <eos>."""
        words = []
        for i in ids:
            if i == EOS:
                break
            words.append(self.words[i])
        return words

    def ids_of(self, words: Iterable[str]) -> list[int]:
        """Looks up the ids of those words that are known."""
        return [self._ids[word] for word in words if word in self._ids]

    @classmethod
    def from_captions(
        cls, captions: Iterable[Sequence[str]], *, min_count: int = 1, size: int | None = None
    ) -> Self:
        """Makes a vocabulary of the words of captions.

        Args:
            captions: Their words.
            min_count: How often a word must be seen.
            size: How many words at most, the commonest; None for all.

        Returns:
            The most frequent word first, equally frequent ones by the alphabet.
        """
        counts = Counter(word for caption in captions for word in caption)
        ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        return cls([word for word, count in ranked[:size] if count >= min_count])


def pad_captions(
    captions: Sequence[Sequence[int]], max_length: int | None = None, *, keep_end: bool = False
) -> Tensor:
    """Puts captions of different lengths into one tensor.

    Args:
        captions: R lists of ids without an end.
        max_length: Tokens at most, the end counted.
        keep_end: Whether a longer caption loses one word more and is ended; else it is cut without an end.

    Returns:
        (R, L) ids, each caption ended by <eos> and padded by -1.
    """
    rows = [[*ids, EOS][:max_length] for ids in captions]
    if keep_end:
        rows = [[*row[:-1], EOS] for row in rows]
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
