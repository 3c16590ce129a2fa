"""Reading labels and expecting meanings one label and one word at a time, in float64 numpy.

Written from the equations in ``models/labels``, whose parameters it reads by name. A label that a mask hides is
simply not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LabelReference:
    """One label: its kind's number, the vector of its name, and its probability."""

    kind: int
    text: Array
    probability: float


def weigh(scores: Sequence[float]) -> list[float]:
    """Softmax of the scores and one more of "none", which is the last of them."""
    exponentials = [np.exp(score - max(scores)) for score in scores]
    return [float(each / sum(exponentials)) for each in exponentials]


class LabelsReference:
    """Slow and plain. weights: of a LabelledCaptioner, by name."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    def says(self, label: LabelReference) -> Array:
        """Equation 1."""
        w = self.weights
        p = np.array([label.probability, np.log(max(label.probability, 1e-3))])
        text = w["reader.W_t.weight"] @ label.text + w["reader.W_t.bias"]
        return np.asarray(np.tanh(text + w["reader.W_p.weight"] @ p + w["reader.kinds.weight"][label.kind]))

    def support(self, label: LabelReference, seen: Array) -> float:
        """Equation 2."""
        w = self.weights
        inner = w["reader.W_r.weight"] @ self.says(label) + w["reader.W_r.bias"] + w["reader.W_v.weight"] @ seen
        return float((w["reader.w_r.weight"] @ np.tanh(inner) + w["reader.w_r.bias"]).item())

    def hint(self, labels: Sequence[LabelReference], seen: Array) -> Array:
        """Equations 3 and 9: what is added to each written word."""
        w = self.weights
        total = w["meaning.plan.weight"] @ self.expect(labels, seen)
        shares = weigh([*(self.support(label, seen) for label in labels), 0.0])
        for label, share in zip(labels, shares, strict=False):
            total = total + share * (w["reader.W_s.weight"] @ self.says(label))
        return np.asarray(total)

    def read(self, output: Array, labels: Sequence[LabelReference], seen: Array) -> tuple[Array, list[float]]:
        """Equations 4 and 5: the output with what labels say, and the labels' weights."""
        w = self.weights
        query = w["reader.W_q.weight"] @ output + w["reader.W_q.bias"]
        scores = []
        for label in labels:
            match = float(query @ (w["reader.W_k.weight"] @ self.says(label)))
            scores.append(self.support(label, seen) + match / np.sqrt(len(query)))
        none = (w["reader.w_0.weight"] @ output + w["reader.w_0.bias"]).item()
        weights = weigh([*scores, float(none)])[:-1]
        for label, weight in zip(labels, weights, strict=True):
            output = output + weight * (w["reader.W_c.weight"] @ self.says(label))
        return output, weights

    def expect(self, labels: Sequence[LabelReference], seen: Array) -> Array:
        """Equation 6."""
        w = self.weights
        total = w["meaning.picture.weight"] @ seen + w["meaning.picture.bias"]
        for label in labels:
            total = total + w["meaning.kinds"][label.kind] * label.probability * label.text
        return np.asarray(total)

    def relevance(self, expected: Array, words: Sequence[int]) -> float:
        """Equations 7 and 8."""
        total = np.zeros(len(expected))
        for word in sorted(set(words)):
            total = total + self.weights["meaning.words.weight"][word]
        return float(expected @ total / np.linalg.norm(total))
