"""Expecting meanings one label and one word at a time, in float64 numpy.

Written from the equations of ``models/labels/expected_meaning.py``, whose parameters it reads by name. A
label that a mask hides is simply not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.labels.expected_meaning import MeaningConfig

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LabelReference:
    """One label: its kind's number, the vector of its name, and its probability."""

    kind: int
    text: Array
    probability: float


class MeaningReference:
    """Slow and plain. weights: of a LabelledCaptioner, by name."""

    def __init__(self, weights: Mapping[str, Array], config: MeaningConfig) -> None:
        self.weights, self.config = weights, config

    def expect(self, labels: Sequence[LabelReference], seen: Array) -> Array:
        """Equation 1."""
        w = self.weights
        total = w["meaning.picture.weight"] @ seen + w["meaning.picture.bias"]
        for label in labels:
            total = total + w["meaning.kinds"][label.kind] * label.probability**self.config.gate * label.text
        return np.asarray(total)

    def embed(self, words: Sequence[int]) -> Array:
        """Equation 2."""
        total = sum(self.weights["meaning.words.weight"][word] for word in sorted(set(words)))
        return np.asarray(total / np.linalg.norm(total))

    def merit(self, expected: Array, words: Sequence[int], score: float, prior: float) -> float:
        """Equations 3 and 5."""
        caption = self.embed(words)
        common = float(self.weights["meaning.common"] @ caption)
        seen = score - self.config.prior * prior
        return float(expected @ caption) - self.config.common * common + self.config.likelihood * seen
