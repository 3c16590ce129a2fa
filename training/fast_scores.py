"""BLEU and ROUGE-L of single captions, as the COCO code computes them, fast enough to be rewards.

References are counted once an item, at its first caption. BLEU is that of one sentence (the COCO code's score
for each item), ROUGE-L's longest common subsequence is found in the bits of whole numbers (Hyyrö 2004).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

ORDERS: Final = 4
#: ROUGE-L's weight of recall against precision.
BETA: Final = 1.2
#: What the COCO code adds to a numerator and a denominator of BLEU.
_TINY, _SMALL = 1e-15, 1e-9

Words = Sequence[str]
Floats = npt.NDArray[np.float64]


class Scorer(Protocol):
    """Scores captions, as words, against the references of the item beside each; ids may repeat."""

    def score(self, ids: Sequence[str], hypotheses: Sequence[Words]) -> Floats: ...


@dataclass(frozen=True)
class _Counted:
    """References of an item: the most of each n-gram that one of them has, and their lengths."""

    most: Mapping[tuple[str, ...], int]
    lengths: tuple[int, ...]


class SentenceBleu:
    """BLEU of up to ``order`` words for each caption alone; without a match of all orders nearly 0.

    references: item → its captions as words. Raises KeyError for an id without references.
    """

    def __init__(self, references: Mapping[str, Sequence[Words]], order: int = ORDERS) -> None:
        self._references, self._order = references, order
        self._counted: dict[str, _Counted] = {}

    def score(self, ids: Sequence[str], hypotheses: Sequence[Words]) -> Floats:
        """(captions,) in [0, 1]."""
        return np.array([self._one(name, words) for name, words in zip(ids, hypotheses, strict=True)])

    def _one(self, name: str, words: Words) -> float:
        if name not in self._counted:
            self._counted[name] = self._count(self._references[name])
        counted, length = self._counted[name], len(words)
        correct = [0] * self._order
        for gram, count in _n_grams(words, self._order).items():
            correct[len(gram) - 1] += min(count, counted.most.get(gram, 0))
        bleu = 1.0
        for k, matched in enumerate(correct):
            bleu *= (matched + _TINY) / (max(0, length - k) + _SMALL)
        closest = min((abs(given - length), given) for given in counted.lengths)[1]
        ratio = (length + _TINY) / (closest + _SMALL)
        return float(bleu ** (1 / self._order) * (math.exp(1 - 1 / ratio) if ratio < 1 else 1.0))

    def _count(self, captions: Sequence[Words]) -> _Counted:
        most: Counter[tuple[str, ...]] = Counter()
        for caption in captions:
            most |= _n_grams(caption, self._order)  # the union of counters takes the greater count
        return _Counted(most, tuple(len(caption) for caption in captions))


def _n_grams(words: Words, order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[i : i + n]) for n in range(1, order + 1) for i in range(len(words) - n + 1))


class RougeL:
    """F of the longest common subsequence, the best precision and the best recall over the references.

    references: item → its captions as words. Raises KeyError for an id without references.
    """

    def __init__(self, references: Mapping[str, Sequence[Words]]) -> None:
        self._references = references
        self._places: dict[str, list[tuple[int, dict[str, int]]]] = {}

    def score(self, ids: Sequence[str], hypotheses: Sequence[Words]) -> Floats:
        """(captions,) in [0, 1]."""
        return np.array([self._one(name, words) for name, words in zip(ids, hypotheses, strict=True)])

    def _one(self, name: str, words: Words) -> float:
        if name not in self._places:
            self._places[name] = [_places(caption) for caption in self._references[name]]
        words = words or [""]
        common = [(_common(words, places, length), length) for length, places in self._places[name]]
        precision = max(count for count, _ in common) / len(words)
        recall = max(count / length for count, length in common)
        if not precision:
            return 0.0
        return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _places(caption: Words) -> tuple[int, dict[str, int]]:
    """A reference's length, and for each of its words a number with a bit for every place.

    A caption of no words counts as one that is empty, as where the COCO code splits a text at its spaces.
    """
    caption = caption or [""]
    places: dict[str, int] = {}
    for i, word in enumerate(caption):
        places[word] = places.get(word, 0) | 1 << i
    return len(caption), places


def _common(words: Words, places: Mapping[str, int], length: int) -> int:
    """Length of the longest common subsequence: the zeros that are left in ``row``."""
    everything = (1 << length) - 1
    row = everything
    for word in words:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & everything
    return length - row.bit_count()
