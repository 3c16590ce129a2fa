"""Planted signals: a toy that names what it sees must be found to need the moment and the place of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Features, Stream
from models.caption import BoxAttention, Evidence, GridAttention
from models.captioner import AnyCaptioner, Captioner
from models.evidence.evidence import find_evidence
from models.evidence.places import find_places
from models.evidence.reader import FeatureReader
from models.inputs import Batch, InputDescription, InputStream, average_frames, collate_inputs
from models.memory import Memory, State, StepAttention
from models.vocabulary import Vocabulary
from tests.models.tiny import (
    SPEC,
    tiny_dual_afr,
    tiny_g2l,
    tiny_refocus,
    tiny_spatial,
    tiny_stats,
    tiny_temporal,
    videos,
)
from tests.models.toy_captioners import NoConfig

WORDS = ("dog", "cat", "the", "thing")


@dataclass(frozen=True, eq=False)
class Seen(Memory):
    """scores: (B, V) of words."""

    scores: Tensor


@dataclass(frozen=True, eq=False)
class Rows(State):
    """video: (R,)."""

    video: Tensor


class Namer(Captioner[Seen, Rows]):
    """Finds a word the likelier the more of its channel it sees; channels are dog, cat."""

    name = "namer"
    config_class = NoConfig

    def __init__(self) -> None:
        super().__init__(NoConfig(), Vocabulary(WORDS))

    @property
    def inputs(self) -> Sequence[InputDescription]:
        return (InputStream(name="grid", width=2),)

    def encode(self, features: Sequence[Features]) -> Seen:
        return self.encode_batches(
            collate_inputs(features, [InputStream(name="grid", width=2)], torch.device("cpu"))
        )

    def encode_batches(self, batches: Sequence[Batch]) -> Seen:
        scores = torch.zeros(batches[0].size, len(self.vocabulary))
        scores[:, self.vocabulary.encode(["dog", "cat"])] = 4 * average_frames(batches[0])
        return Seen(batches[0].times, scores)

    def start(self, memory: Seen, rows_per_video: int) -> Rows:
        return Rows(torch.arange(memory.size).repeat_interleave(rows_per_video))

    def step(self, state: Rows, word: Tensor, memory: Seen) -> tuple[Tensor, Rows, StepAttention | None]:
        return memory.scores[state.video].log_softmax(1), state, None


def film(boxes: Tensor | None = None, places: int = 16) -> dict[str, Stream]:
    """Four moments of a grid, or of boxes: a dog in the last place of moment 0, a cat in the first of 3."""
    values = torch.zeros(4, places, 2)
    values[0, -1, 0], values[3, 0, 1] = 3.0, 3.0
    start = np.arange(4.0)
    return {"grid": Stream(values, start, start + 1, SPEC, boxes=boxes)}


def explain(features: Features, words: Sequence[str]) -> Evidence:
    namer, times = Namer(), np.stack([features["grid"].start, features["grid"].end], 1)
    reader = FeatureReader(namer, features, times, namer.vocabulary.encode(words))
    return find_evidence(reader, words, len(times), find_places(features["grid"]))


def test_each_word_needs_the_moment_and_the_cell_of_its_thing_and_function_words_none() -> None:
    evidence = explain(film(), ["the", "dog", "the", "cat", "thing"])
    assert evidence.moments == [None, 0, None, 3, None]
    assert evidence.spread == [False, False, False, False, True]  # nothing of the film tells of a thing
    assert [row is None for row in evidence.temporal] == [True, False, True, False, False]
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
def test_what_is_read_in_one_batch_is_what_is_read_one_by_one(make: Callable[[], AnyCaptioner]) -> None:
    captioner, (features,) = make(), videos((3,))
    times = np.stack([features["grid"].start, features["grid"].end], 1)
    reader = FeatureReader(captioner, features, times, captioner.vocabulary.encode(["w1", "w5", "w2"]))
    together = reader.read_moments(range(3))
    alone = np.concatenate([reader.read_moments([moment]) for moment in range(3)])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert np.ptp(together, axis=0).max() > 1e-4  # moments are told apart
    views = [(1, (0.0, 0.0, 0.5, 0.5)), (2, (0.5, 0.5, 1.0, 1.0))]
    np.testing.assert_allclose(
        reader.read_places(views), np.concatenate([reader.read_places([each]) for each in views]), atol=1e-5
    )
