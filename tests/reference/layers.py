"""The layers that references are made of, in float64 numpy, one vector at a time; weights go by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax(scores: Sequence[float] | Array) -> Array:
    exponentials = np.exp(np.asarray(scores) - np.max(scores))
    return np.asarray(exponentials / exponentials.sum())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


class Layers:
    """Parameters by the names that the captioner's ``state_dict`` gives them."""

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.weights = weights

    def linear(self, name: str, x: Array) -> Array:
        bias = self.weights.get(f"{name}.bias")
        product = self.weights[f"{name}.weight"] @ x
        return np.asarray(product if bias is None else product + bias)

    def additive(self, name: str, h: Array, x: Array) -> float:
        """wᵀ tanh(W_h h + W_x x + b)."""
        energy = np.tanh(self.linear(f"{name}.W_h", h) + self.linear(f"{name}.W_x", x))
        return float(self.linear(f"{name}.w", energy)[0])

    def bilinear(self, name: str, h: Array, x: Array) -> float:
        """wᵀ tanh(W_h h ⊙ W_x x + b)."""
        product = self.linear(f"{name}.W_h", h) * self.linear(f"{name}.W_x", x)
        energy = np.tanh(product + self.weights.get(f"{name}.b", np.zeros(len(product))))
        return float(self.linear(f"{name}.w", energy)[0])

    def lstm(self, name: str, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """torch's order of gates: input, forget, candidate, output."""
        w = self.weights
        gates = w[f"{name}.weight_ih"] @ x + w[f"{name}.bias_ih"]
        gates = gates + w[f"{name}.weight_hh"] @ h + w[f"{name}.bias_hh"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c

    def gru(self, name: str, x: Array, h: Array) -> Array:
        """torch's order of gates: reset, update, candidate."""
        w = self.weights
        x_r, x_z, x_n = np.split(w[f"{name}.weight_ih"] @ x + w[f"{name}.bias_ih"], 3)
        h_r, h_z, h_n = np.split(w[f"{name}.weight_hh"] @ h + w[f"{name}.bias_hh"], 3)
        z = sigmoid(x_z + h_z)
        return np.asarray((1 - z) * np.tanh(x_n + sigmoid(x_r + h_r) * h_n) + z * h)

    def word(self, index: int) -> Array:
        embedding = self.weights["word_embedding.weight"]
        return np.asarray(embedding[index] * np.sqrt(embedding.shape[1]))

    def log_probs(self, h: Array) -> Array:
        """The output layer; tied words have a projection before it."""
        projected = self.linear("project", h) if "project.weight" in self.weights else h
        return np.log(softmax(self.linear("output", projected)))
