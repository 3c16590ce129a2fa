"""dualAFR word by word, one video at a time, its 3D convolution one number at a time, in float64 numpy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from models.captioners.dual_afr.alignment import LayerConfig
from models.captioners.dual_afr.config import DualAFRConfig
from tests.reference.layers import Array, Layers, softmax

Draw = tuple[int, int]  # the place and the layer that hard attention drew for a word


@dataclass(frozen=True, eq=False)
class StepReference:
    """The first word has no attention."""

    log_probs: Array  # (V,)
    temporal: Array | None = None  # (M,)
    spatial: Array | None = None  # (M, N)
    layers: Array | None = None  # (L,)
    log_m: float | None = None


def padded_time(a: Array, rows: int) -> Array:
    """(T, …) → (rows, …): the last row again and again."""
    return np.concatenate([a, np.repeat(a[-1:], rows - len(a), 0)])


def convolved(a: Array, kernel: Array, bias: Array) -> Array:
    """a: (T, S, S, C_in), kernel: (C_out, C_in, k_t, k_s, k_s) → (T, S, S, C_out), zeros outside."""
    k_t, k_s = kernel.shape[2], kernel.shape[3]
    around = np.pad(a, [(k_t // 2,) * 2, (k_s // 2,) * 2, (k_s // 2,) * 2, (0, 0)])
    out = np.zeros((*a.shape[:3], len(kernel)))
    for t, y, x, k in product(*(range(n) for n in out.shape)):
        window = around[t : t + k_t, y : y + k_s, x : x + k_s].transpose(3, 0, 1, 2)
        out[t, y, x, k] = (window * kernel[k]).sum() + bias[k]
    return out


def windows(a: Array, time: int, space: int) -> Iterator[tuple[int, int, int, Array]]:
    """Each pooling window of (T, S, S, C) with its place; what the spatial padding adds is not in it."""
    side = (a.shape[1] + 2 * (space // 2) - space) // space + 1
    for m, y, x in product(range(a.shape[0] // time), range(side), range(side)):
        top, left = y * space - space // 2, x * space - space // 2
        rows, columns = slice(max(top, 0), top + space), slice(max(left, 0), left + space)
        yield m, y, x, a[m * time : (m + 1) * time, rows, columns].reshape(-1, a.shape[3])


class DualAFRReference(Layers):
    """``draws`` of hard training: what was drawn for each word but the first."""

    def __init__(self, weights: Mapping[str, Array], config: DualAFRConfig) -> None:
        super().__init__(weights)
        self.config = config

    def caption(
        self, layers: Sequence[Array], top: Array, words: Sequence[int], draws: Sequence[Draw] | None
    ) -> list[StepReference]:
        """layers: (T_l, N_l, C_l) each; top: a_{L+1}; words: what each step is given."""
        slots = max(-(-len(a) // c.pool[0]) for a, c in zip(layers, self.config.layers, strict=True))
        aligned = [self.aligned(i, a, slots) for i, a in enumerate(layers)]
        h, c = np.tanh(self.linear("C", top)), np.zeros(self.config.hidden)
        steps = [StepReference(self.log_probs(h))]
        for t, word in enumerate(words[1:]):
            z, looked = self._attend(h, aligned, None if draws is None else draws[t])
            h, c = self.lstm("decoder", np.concatenate([self.word(word), z]), h, c)
            steps.append(StepReference(self.log_probs(h), *looked))
        return steps

    def aligned(self, index: int, a: Array, slots: int) -> Array:
        """(T, N, C_l) → (M, N, C)."""
        layer = self.config.layers[index]
        whole = padded_time(a, slots * layer.pool[0])
        maps = whole.reshape(len(whole), layer.side, layer.side, layer.width)
        if self.config.alignment == "convolution":
            return self._by_convolution(index, layer, maps)
        at_places = np.zeros((slots, layer.aligned_side, layer.aligned_side, layer.width))
        for m, y, x, window in windows(maps, *layer.pool):
            at_places[m, y, x] = window.max(0) if self.config.alignment == "max" else window.mean(0)
        return np.array(
            [[self._mlp(index, v) for v in row] for row in at_places.reshape(slots, -1, layer.width)]
        )

    def _by_convolution(self, index: int, layer: LayerConfig, maps: Array) -> Array:
        if f"align.{index}.U.weight" not in self.weights:  # a_L is what the others are aligned to
            return maps.reshape(len(maps), -1, layer.width)
        kernel, bias = self.weights[f"align.{index}.U.weight"], self.weights[f"align.{index}.U.bias"]
        active = np.maximum(convolved(maps, kernel, bias), 0)  # eq. 3
        slots, side = len(maps) // layer.pool[0], layer.aligned_side
        pooled = np.zeros((slots, side, side, active.shape[3]))
        for m, y, x, window in windows(active, *layer.pool):
            pooled[m, y, x] = window.max(0)
        return pooled.reshape(slots, side * side, -1)

    def _mlp(self, index: int, value: Array) -> Array:
        hidden = np.maximum(self.linear(f"align.{index}.mlp.0", value), 0)
        return self.linear(f"align.{index}.mlp.2", hidden)

    def _attend(
        self, h: Array, aligned: list[Array], draw: Draw | None
    ) -> tuple[Array, tuple[Array, Array, Array, float | None]]:
        slots, cells, _ = aligned[0].shape
        places = list(product(range(slots), range(cells)))
        stacked = [np.concatenate([a[m, n] for a in aligned]) for m, n in places]
        e = np.array([self.additive("attention_alpha", h, a_i) for a_i in stacked])  # eq. 4
        alpha = softmax(e)  # eq. 5
        place = self._psi(alpha, None if draw is None else draw[0])
        s = [sum(place[i] * a[m, n] for i, (m, n) in enumerate(places)) for a in aligned]
        beta = softmax([self.additive("attention_beta", h, np.asarray(s_l)) for s_l in s])  # eqs. 6, 7
        layer = self._psi(beta, None if draw is None else draw[1])
        z = sum(layer[i] * s_l for i, s_l in enumerate(s))
        spatial = np.array([softmax(row) for row in e.reshape(slots, cells)])
        log_m = None if draw is None else float(np.log(alpha[draw[0]]) + np.log(beta[draw[1]]))
        return np.asarray(z), (alpha.reshape(slots, cells).sum(1), spatial, beta, log_m)

    def _psi(self, weights: Array, drawn: int | None) -> Array:
        """Eqs. 8 and 9."""
        if self.config.kind == "soft":
            return weights
        return np.asarray(np.eye(len(weights))[int(weights.argmax()) if drawn is None else drawn])
