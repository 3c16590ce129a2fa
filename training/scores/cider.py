"""Computes CIDEr-D as the COCO caption code does, fast enough to be the reward of self-critical training.

Vedantam et al., "CIDEr: Consensus-based Image Description Evaluation" (2015): a caption is a vector of
n-gram counts (n = 1..4), each weighted by log(items / items whose references hold the n-gram), and the
score is ten times the mean cosine with the references. CIDEr-D clips the candidate's weight at the
reference's and multiplies by exp(-d² / 2·6²), where the COCO code takes d in bigrams, not words.

Document frequencies and reference vectors are made once; a batch is then scored by joining two sorted
lists in numpy, with no loop over n-grams in Python.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np
import numpy.typing as npt

ORDERS: Final = 4
SIGMA: Final = 6.0
SCALE: Final = 10.0

#: The word that ends a caption where `count_end` is set; an object of its own, which no word can equal.
_END: Final = object()
#: Seeds of the words' codes and of the odd factors, one for each place in an n-gram, that make its hash.
_CODES_SEED: Final = 2015
_PLACES: Final = np.random.default_rng(4).integers(0, 2**63, ORDERS, np.uint64) | np.uint64(1)

Tokens = Sequence[Hashable]
_Ints = npt.NDArray[np.int64]
_Keys = npt.NDArray[np.uint64]
_Floats = npt.NDArray[np.float64]


class CiderD:
    """Scores captions against references whose statistics are computed once.

    `references` maps an item's id to its captions, each a sequence of words or of ints; all items together
    are the corpus of the document frequencies. With `count_end` every caption ends in one more word, so that
    n-grams such as "a <end>" are paid for: without it, self-critical training learns to stop after "a" or
    "with" (ruotianluo/self-critical.pytorch keeps the end token for this reason). `plain` gives CIDEr without
    clipping and length penalty.

    An n-gram is known by a 64-bit hash; ten million different ones collide with a probability of 3e-6.

    Raises ValueError for an item without references.
    """

    def __init__(
        self, references: Mapping[str, Sequence[Tokens]], count_end: bool = False, plain: bool = False
    ) -> None:
        empty = next((name for name, captions in references.items() if not captions), None)
        if empty is not None:
            raise ValueError(f"Item {empty!r} has no references: CIDEr cannot score it.")
        self.count_end = count_end
        self.plain = plain
        self._words: dict[Hashable, int] = {}
        self._codes: _Keys = np.empty(0, np.uint64)
        self._items = {name: index for index, name in enumerate(references)}
        captions = list(chain.from_iterable(references.values()))
        per_item = np.array([len(captions) for captions in references.values()], np.int64)
        self._first_caption = np.concatenate(([0], np.cumsum(per_item)))
        self._index_references(self._list_n_grams(captions, np.ones(len(captions), bool)), per_item)

    @property
    def is_computable(self) -> bool:
        """Tells whether any n-gram weighs something: none does that is in the references of all items."""
        return bool((self._weight > 0).any())

    def score(
        self, ids: Sequence[str], hypotheses: Sequence[Tokens], finished: Sequence[bool] | None = None
    ) -> npt.NDArray[np.float64]:
        """Scores each hypothesis against the references of the item beside it.

        Args:
            ids: of the items; they may repeat.
            hypotheses: captions as words or ints.
            finished: where the end is counted, which hypotheses reached it, by default all: one that was cut
                has no end to be paid for.

        Returns:
            (len(ids),) scores, 0 to 10.

        Raises:
            KeyError: an id has no references.
            ValueError: the lengths differ.
        """
        ended = np.ones(len(ids), bool) if finished is None else np.asarray(finished, bool)
        if not len(ids) == len(hypotheses) == len(ended):
            raise ValueError(f"{len(ids)} ids, {len(hypotheses)} hypotheses, {len(ended)} ends: no pairs.")
        if not len(ids):
            return np.empty(0)
        items, item_of = np.unique([self._items[name] for name in ids], return_inverse=True)
        captions, caption_item = _expand(self._first_caption[items], self._first_caption[items + 1])
        pairs = _Pairs(item_of, caption_item)
        hypothesis = self._build_vectors(self._list_n_grams(hypotheses, ended))
        similarity = self._compute_similarity(hypothesis, self._take_reference_vectors(captions), pairs)
        return SCALE * np.bincount(pairs.hypothesis, similarity, len(ids)) / pairs.references

    def _index_references(self, grams: _NGrams, per_item: _Ints) -> None:
        """Numbers the corpus's n-grams, counts the items that hold each, keeps captions as sparse rows."""
        self._keys, first, gram = np.unique(grams.key, return_index=True, return_inverse=True)
        self._order = grams.order[first]
        size = max(1, len(self._keys))
        cells, counts = np.unique(grams.row * size + gram, return_counts=True)
        row, column = np.divmod(cells, size)
        item = np.repeat(np.arange(len(per_item)), per_item)
        documents = np.bincount(np.unique(item[row] * size + column) % size, minlength=len(self._keys))
        self._unseen_weight = float(np.log(max(1, len(per_item))))
        self._weight = self._unseen_weight - np.log(np.maximum(1.0, documents))
        self._row_start = np.searchsorted(row, np.arange(per_item.sum() + 1))
        self._column = column.astype(np.int32)
        self._count = np.minimum(counts, np.iinfo(np.uint16).max).astype(np.uint16)

    def _list_n_grams(self, captions: Sequence[Tokens], ended: npt.NDArray[np.bool_]) -> _NGrams:
        """Lists every n-gram occurrence of the captions, in no particular order."""
        rows = [
            [*caption, _END] if self.count_end and end else caption
            for caption, end in zip(captions, ended, strict=True)
        ]
        row = np.repeat(np.arange(len(rows)), np.array([len(words) for words in rows], np.int64))
        codes = self._look_up_codes(list(chain.from_iterable(rows)))
        keys, owners, orders = [], [], []
        key = np.zeros(len(codes), np.uint64)
        for order in range(ORDERS):
            whole = max(0, len(codes) - order)
            key = key[:whole] + codes[order:] * _PLACES[order]
            inside = row[:whole] == row[order:]
            keys.append(key[inside])
            owners.append(row[:whole][inside])
            orders.append(np.full(len(keys[-1]), order, np.int64))
        return _NGrams(len(rows), np.concatenate(owners), np.concatenate(keys), np.concatenate(orders))

    def _look_up_codes(self, words: list[Hashable]) -> _Keys:
        """Returns a random 64-bit number for each word, always the same for the same word."""
        numbered = self._words
        numbers = np.array([numbered.setdefault(word, len(numbered)) for word in words], np.int64)
        if len(numbered) > len(self._codes):
            generator = np.random.default_rng(_CODES_SEED)
            self._codes = generator.integers(0, 2**64, 2 * len(numbered), dtype=np.uint64, endpoint=False)
        return self._codes[numbers]

    def _build_vectors(self, grams: _NGrams) -> _Vectors:
        """Builds sparse weighted rows of captions that may hold n-grams the corpus has never seen."""
        keys, first, local = np.unique(grams.key, return_index=True, return_inverse=True)
        place = np.searchsorted(self._keys, keys)
        seen = place < len(self._keys)
        seen[seen] = self._keys[place[seen]] == keys[seen]
        weight = np.full(len(keys), self._unseen_weight)
        weight[seen] = self._weight[place[seen]]
        column = np.where(seen, place, -1)
        size = max(1, len(keys))
        cells, count = np.unique(grams.row * size + local, return_counts=True)
        row, gram = np.divmod(cells, size)
        return _Vectors(grams.rows, row, column[gram], grams.order[first][gram], count, count * weight[gram])

    def _take_reference_vectors(self, captions: _Ints) -> _Vectors:
        entries, row = _expand(self._row_start[captions], self._row_start[captions + 1])
        column, count = self._column[entries].astype(np.int64), self._count[entries].astype(np.int64)
        return _Vectors(len(captions), row, column, self._order[column], count, count * self._weight[column])

    def _compute_similarity(self, hypothesis: _Vectors, reference: _Vectors, pairs: _Pairs) -> _Floats:
        """Computes (pairs,): mean over orders of the (clipped) cosine, times the length penalty."""
        entry, match = self._match_n_grams(hypothesis, reference, pairs)
        ours, theirs = hypothesis.weight[entry], reference.weight[match]
        product = (ours if self.plain else np.minimum(ours, theirs)) * theirs
        cell = pairs.between(hypothesis.row[entry], reference.row[match]) * ORDERS + hypothesis.order[entry]
        dot = np.bincount(cell, product, len(pairs.hypothesis) * ORDERS).reshape(-1, ORDERS)
        norms = hypothesis.norms()[pairs.hypothesis] * reference.norms()[pairs.reference]
        cosine = np.divide(dot, norms, out=np.zeros(dot.shape), where=norms > 0).mean(axis=-1)
        if not self.plain:
            distance = hypothesis.lengths()[pairs.hypothesis] - reference.lengths()[pairs.reference]
            cosine *= np.exp(-(distance**2) / (2 * SIGMA**2))
        return np.asarray(cosine)

    def _match_n_grams(self, hypothesis: _Vectors, reference: _Vectors, pairs: _Pairs) -> tuple[_Ints, _Ints]:
        """Returns entries of hypotheses, and beside each the equal n-gram of a reference of its item."""
        size = max(1, len(self._keys))
        wanted_cells = np.where(
            hypothesis.column < 0, -1, pairs.item_of[hypothesis.row] * size + hypothesis.column
        )
        cells = pairs.caption_item[reference.row] * size + reference.column
        by_cell = np.argsort(cells, kind="stable")
        cells = cells[by_cell]
        match, entry = _expand(
            np.searchsorted(cells, wanted_cells), np.searchsorted(cells, wanted_cells, "right")
        )
        return entry, by_cell[match]


@dataclass(frozen=True)
class _NGrams:
    """Occurrences of n-grams: the caption (row), the hash (key) and n - 1 (order) of each."""

    rows: int
    row: _Ints
    key: _Keys
    order: _Ints


@dataclass(frozen=True)
class _Vectors:
    """Sparse rows, one a caption: n-gram `column[e]` (-1: not in the corpus) occurs `count[e]` times."""

    rows: int
    row: _Ints
    column: _Ints
    order: _Ints
    count: _Ints
    weight: _Floats

    def norms(self) -> _Floats:
        """Computes (rows, ORDERS)."""
        squares = np.bincount(self.row * ORDERS + self.order, self.weight**2, self.rows * ORDERS)
        return np.sqrt(squares).reshape(self.rows, ORDERS)

    def lengths(self) -> _Floats:
        """Counts (rows,), in bigrams as the COCO code has it."""
        bigrams = self.order == 1
        return np.bincount(self.row[bigrams], self.count[bigrams], self.rows).astype(np.float64)


class _Pairs:
    """Every hypothesis with every reference of its item; pairs of one hypothesis are adjacent, in order.

    Captions are numbered within the batch: those of item i are first[i]..first[i + 1].
    """

    def __init__(self, item_of: _Ints, caption_item: _Ints) -> None:
        first = np.searchsorted(caption_item, np.arange(item_of.max() + 2))
        self.item_of, self.caption_item = item_of, caption_item
        self.references = (first[1:] - first[:-1])[item_of]
        self.reference, self.hypothesis = _expand(first[item_of], first[item_of + 1])
        # Pair number = caption number + what the hypothesis's pairs are shifted by.
        self._shift = np.cumsum(self.references) - self.references - first[item_of]

    def between(self, hypothesis: _Ints, reference: _Ints) -> _Ints:
        number: _Ints = self._shift[hypothesis] + reference
        return number


def _expand(start: _Ints, stop: _Ints) -> tuple[_Ints, _Ints]:
    """Returns the whole numbers of all ranges start[i]..stop[i], one after the other, and the i of each."""
    sizes = stop - start
    owner = np.repeat(np.arange(len(start)), sizes)
    offset = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return start[owner] + offset, owner
