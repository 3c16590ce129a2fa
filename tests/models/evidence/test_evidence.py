"""Planted signals: a toy that names what it sees must be found to need the moment and the place of it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from models.caption import BoxAttention, GridAttention
from models.captioner import Captioner
from models.captioners.stats.network import STaTSMemory, STaTSState
from models.evidence.reader import FeatureReader, VideoPart
from tests.models.evidence.namer import explain, film
from tests.models.tiny import (
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    videos,
)


def test_each_word_needs_the_moment_and_the_cell_of_its_thing_and_function_words_none() -> None:
    evidence = explain(film(), ["the", "dog", "the", "cat", "thing"])
    assert evidence.moments == [None, 0, None, 3, None]
    assert evidence.spread == [False, False, False, False, True]  # nothing of the film tells of a thing
    assert [row is None for row in evidence.temporal] == [True, False, True, False, False]
    assert evidence.unplaced == [False, False, False, False, True]
    assert isinstance(evidence.spatial, GridAttention)
    for word, moment, cell in ((1, 0, 15), (3, 3, 0)):
        rows = evidence.spatial.weights[word]
        assert rows is not None
        assert [row is not None for row in rows] == [place == moment for place in range(4)]
        assert int(np.argmax(rows[moment] or [])) == cell
        assert sum(rows[moment] or []) == pytest.approx(1, abs=1e-3)


def test_a_word_needs_the_box_of_its_thing() -> None:
    boxes = torch.tensor([[0.0, 0.0, 0.4, 0.4], [0.5, 0.0, 0.9, 0.5], [0.1, 0.6, 0.5, 1.0]]).expand(4, 3, 4)
    evidence = explain(film(boxes, places=3), ["dog", "cat"])
    assert isinstance(evidence.spatial, BoxAttention)
    assert evidence.boxes == [pytest.approx([0.1, 0.6, 0.5, 1.0]), pytest.approx([0.0, 0.0, 0.4, 0.4])]


@pytest.mark.parametrize(
    "make", [tiny_stats, tiny_g2l, tiny_dual_afr, tiny_refocus, tiny_spatial, tiny_temporal]
)
def test_what_is_read_in_one_batch_is_what_is_read_one_by_one(make: Callable[[], Captioner]) -> None:
    captioner, (features,) = make(), videos((3,))
    times = np.stack([features["grid"].start, features["grid"].end], 1)
    reader = FeatureReader(captioner, features, times, captioner.vocabulary.encode(["w1", "w5", "w2"]))
    parts = [
        *map(VideoPart, range(3)),
        VideoPart(1, (0.0, 0.0, 0.5, 0.5)),
        VideoPart(2, (0.5, 0.5, 1.0, 1.0)),
        VideoPart(2, (0.5, 0.5, 1.0, 1.0), is_hidden=True),
    ]
    words = np.array([[True, place != 1, True] for place in range(len(parts))])
    together = reader.read(parts, words)
    alone = [reader.read([part], row[None]) for part, row in zip(parts, words, strict=True)]
    np.testing.assert_allclose(together, np.concatenate(alone), atol=1e-5)
    assert np.ptp(together[:3], axis=0).max() > 1e-4  # moments are told apart
    assert together[1, 1] == 0


def test_a_word_that_is_all_along_is_read_at_the_moment_that_another_word_needs() -> None:
    evidence = explain(film(dog=(0, 1, 2, 3), cat=(2,)), ["dog", "cat"])
    assert evidence.moments == [None, 2]
    assert isinstance(evidence.spatial, GridAttention)
    rows = evidence.spatial.weights[0]
    assert rows is not None
    assert [row is not None for row in rows] == [False, False, True, False]


def test_no_step_is_taken_of_a_part_behind_its_last_word_in_question(monkeypatch: pytest.MonkeyPatch) -> None:
    captioner, (features,) = tiny_stats(), videos((3,))
    times = np.stack([features["grid"].start, features["grid"].end], 1)
    reader = FeatureReader(captioner, features, times, captioner.vocabulary.encode(["w1", "w5", "w2", "w3"]))
    rows: list[int] = []
    advance = captioner.advance

    def count(state: STaTSState, embedded: Tensor, memory: STaTSMemory) -> object:
        rows.append(len(embedded))
        return advance(state, embedded, memory)

    monkeypatch.setattr(captioner, "advance", count)
    words = np.array([[True, False, False, False], [False, False, True, False], [False, True, False, False]])
    read = reader.read([VideoPart(moment) for moment in range(3)], words)
    assert rows == [3, 2, 1]
    assert ((read < 0) == words).all()
