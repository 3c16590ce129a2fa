"""A toy captioner that names what it sees, and films that it has something to name in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from extractors.features import Features, Stream
from models.caption import Evidence
from models.captioner import Captioner
from models.evidence.evidence import find_evidence
from models.evidence.places import find_places
from models.evidence.reader import FeatureReader
from models.inputs import Batch, InputStream, average_frames, collate_inputs
from models.memory import Memory, State, StepAttention
from models.vocabulary import Vocabulary
from tests.models.tiny import SPEC
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


class Namer(Captioner):
    """Finds a word the likelier the more of its channel it sees; channels are dog, cat."""

    name = "namer"
    config_class = NoConfig

    def __init__(self) -> None:
        super().__init__(NoConfig(), Vocabulary(WORDS))

    @property
    def inputs(self) -> Sequence[InputStream]:
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


def film(
    boxes: Tensor | None = None, places: int = 16, dog: Sequence[int] = (0,), cat: Sequence[int] = (3,)
) -> dict[str, Stream]:
    """Four moments of a grid, or of boxes: a dog in the last place of some of them, a cat in the first."""
    values = torch.zeros(4, places, 2)
    values[list(dog), -1, 0], values[list(cat), 0, 1] = 3.0, 3.0
    start = np.arange(4.0)
    return {"grid": Stream(values, start, start + 1, SPEC, boxes=boxes)}


def explain(features: Features, words: Sequence[str]) -> Evidence:
    namer, times = Namer(), np.stack([features["grid"].start, features["grid"].end], 1)
    reader = FeatureReader(namer, features, times, namer.vocabulary.encode(words))
    return find_evidence(reader, words, len(times), find_places(features["grid"]))
