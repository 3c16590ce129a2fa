"""G2L word by word, one video at a time, in float64 numpy; written from the paper's equations.

Its frames, clips and regions must stand as the paper's do: as many clips as frames, and a row of regions
for every ``stride`` frames.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.captioners.g2l.config import G2LConfig
from tests.reference.layers import Array, Layers, relu, softmax

Regions = list[list[tuple[int, Array]]]  # rows → (region's number, r'), visible ones alone


@dataclass(frozen=True, eq=False)
class StepReference:
    log_probs: Array  # (V,)
    temporal: Array  # (J,)
    spatial: Array  # (J, N)
    selected: Array  # (J,)


class G2LReference(Layers):
    """``noise`` (steps, K, J) are the Gumbel draws of a training pass; None chooses exactly."""

    def __init__(self, weights: Mapping[str, Array], config: G2LConfig, stride: int) -> None:
        super().__init__(weights)
        self.config, self.stride = config, stride

    def caption(
        self,
        frames: Array,
        clips: Array,
        regions: Array,
        mask: NDArray[np.bool_],
        words: Sequence[int],
        noise: Array | None,
    ) -> list[StepReference]:
        """frames: (L, d2d), clips: (L, d3d), regions: (J, N, d_obj)."""
        f = [relu(self.linear("W_f", x)) for x in frames]  # eq. 1
        v = [relu(self.linear("W_v", x)) for x in clips]
        r = [
            [(i, relu(self.linear("W_r", x))) for i, x in enumerate(row) if mask[j, i]]  # eq. 7
            for j, row in enumerate(regions)
        ]
        h_1 = h_2 = np.zeros(self.config.hidden)
        steps = []
        for t, word in enumerate(words):
            draws = None if noise is None else noise[t]
            a_al = self._attend("attention_al", h_2, [np.concatenate(p) for p in zip(f, v, strict=True)])
            x_G = self._global(h_2, f, v, a_al)
            x_L, step = self._local(h_2, r, a_al, draws, regions.shape[1])
            x_t = np.concatenate([x_G, x_L])  # eq. 11
            h_1 = self.gru("gru_1", np.concatenate([x_t, self.word(word)]), h_1)  # eq. 10
            h_2 = self.gru("gru_2", h_1, h_2)
            steps.append(StepReference(self.log_probs(h_2), *step))
        return steps

    def _attend(self, name: str, h: Array, values: Sequence[Array]) -> Array:
        return softmax([self.bilinear(name, h, value) for value in values])  # eqs. 2, 3

    def _global(self, h: Array, f: list[Array], v: list[Array], a_al: Array) -> Array:
        a_2d, a_3d = self._attend("attention_2d", h, f), self._attend("attention_3d", h, v)
        total: Array = np.zeros(2 * self.config.encoded + self.config.aligned)
        for i in range(len(f)):  # eq. 4
            scaled = a_al[i] * np.concatenate([f[i], v[i]])
            phi = relu(self.weights["W_al.weight"] @ scaled + self.weights["b_al"])
            total = total + np.concatenate([a_2d[i] * f[i], a_3d[i] * v[i], phi])
        return total

    def _local(
        self, h: Array, r: Regions, a_al: Array, noise: Array | None, regions: int
    ) -> tuple[Array, tuple[Array, Array, Array]]:
        threes = [a_al[j * self.stride : (j + 1) * self.stride] for j in range(len(r))]
        pi = np.array([three.mean() for three in threes])  # eq. 8
        pi = pi / pi.sum()
        selected = self._sampled(pi, noise) if noise is not None else self._exact(pi)
        spatial, x_L = np.zeros((len(r), regions)), np.zeros(self.config.encoded)
        for j, row in enumerate(r):
            a_l = self._attend("attention_l", h, [x for _, x in row])
            for a, (i, x) in zip(a_l, row, strict=True):
                spatial[j, i] = a
                x_L = x_L + selected[j] * a * x  # eq. 9
        return x_L, (pi, spatial, selected)

    def _exact(self, pi: Array) -> Array:
        selected = np.zeros(len(pi))
        selected[np.argsort(-pi.round(6), kind="stable")[: self.config.key_frames]] = 1
        return selected

    def _sampled(self, pi: Array, noise: Array) -> Array:
        """Eqs. 5 and 6, as printed, where there are frames left to choose."""
        scale, earlier = self.config.scale, np.zeros(len(pi))
        for k in range(min(self.config.key_frames, len(pi))):
            rest = np.maximum(scale * pi - scale * earlier, 1e-20)
            earlier = earlier + softmax((np.log(rest) + noise[k][: len(pi)]) / self.config.tau)
        return earlier
