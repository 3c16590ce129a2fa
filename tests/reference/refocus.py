"""Refocus word by word, one video at a time, frames as lists, in float64 numpy: its two algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.captioners.refocus.config import RefocusConfig
from tests.reference.layers import Array, Layers, relu, softmax


@dataclass(frozen=True, eq=False)
class StepReference:
    log_probs: Array  # (V,)
    temporal: Array  # (K,)
    spatial: Array | None  # (N,)


@dataclass(frozen=True, eq=False)
class VideoReference:
    """What algorithm 1 gives, and V^f, v^s, v^a for the decoder."""

    frames: list[Array]
    cells: list[Array]
    audio: Array
    o: tuple[Array, Array]
    alpha: Array
    key: int


class RefocusReference(Layers):
    def __init__(self, weights: Mapping[str, Array], config: RefocusConfig) -> None:
        super().__init__(weights)
        self.config = config

    def watch(self, grid: Array, audio: Array | None, key: int | None = None) -> VideoReference:
        """Algorithm 1. grid: (K, N, C), all of it seen; audio: v^a or None for a video without sound."""
        frames = [self._embedded(frame.mean(0)) for frame in grid]  # eq. 2
        cells = [self._embedded(grid[:, j].mean(0)) for j in range(grid.shape[1])]  # eq. 3
        v_a = np.zeros(self.config.audio_width) if audio is None else audio
        h_1 = self._kbigru(frames, len(frames) // 2)
        o_1 = self._encoding(h_1, v_a)
        if self.config.encoder == "none":
            nothing = np.zeros(self.config.hidden)
            return VideoReference(frames, cells, v_a, (nothing, nothing), np.zeros(0), len(frames) // 2)
        if self.config.encoder == "kbigru":
            return VideoReference(frames, cells, v_a, (o_1, o_1), np.zeros(0), len(frames) // 2)
        a = [self.bilinear("watcher.vre.refocusing", o_1, v) for v in frames]  # eq. 8
        alpha = softmax(a)  # eq. 9
        chosen = int(alpha.argmax()) if key is None else key  # eqs. 10, 11
        h_2 = self._kbigru(frames, chosen)
        both = np.tanh(self.linear("watcher.vre.W_m", np.concatenate([h_1, h_2])))
        return VideoReference(frames, cells, v_a, (o_1, self._encoding(both, v_a)), alpha, chosen)

    def caption(self, video: VideoReference, step: int, words: Sequence[int]) -> list[StepReference]:
        """Algorithm 2 for one of its two steps, 1 or 2; ``words[0]`` is not read."""
        o = video.o[step - 1]
        h, c = np.zeros(self.config.hidden), o
        steps = []
        for t, word in enumerate(words):
            query = np.concatenate([o, h])
            alpha_T = self._attend("temporal_attention", query, video.frames)
            contexts = [self._sum(alpha_T, video.frames)]
            alpha_S = None
            if self.config.spatial:
                alpha_S = self._attend("spatial_attention", query, video.cells)
                contexts.append(self._sum(alpha_S, video.cells))
            last = o if t == 0 else self.word(word)
            h, c = self.lstm("decoder", np.concatenate([*contexts, video.audio, last]), h, c)
            steps.append(StepReference(self.log_probs(h), alpha_T, alpha_S))
        return steps

    def _embedded(self, x: Array) -> Array:
        return x if self.config.embedded is None else relu(self.linear("watcher.embed.0", x))

    def _kbigru(self, frames: list[Array], key: int) -> Array:
        """Eqs. 5 to 7; both GRUs read the key frame first."""
        if self.config.encoder == "none":
            return np.zeros(self.config.hidden)
        left = right = np.zeros(self.config.hidden)
        for i in range(key, -1, -1):
            left = self.gru("watcher.vre.kbigru.leftward", frames[i], left)
        for j in range(key, len(frames)):
            right = self.gru("watcher.vre.kbigru.rightward", frames[j], right)
        return np.tanh(self.linear("watcher.vre.kbigru.W_c", np.concatenate([left, right])))

    def _encoding(self, h: Array, audio: Array) -> Array:
        if self.config.encoder == "none":
            return np.zeros(self.config.hidden)
        return np.tanh(self.linear("watcher.vre.W_a", np.concatenate([h, audio])))

    def _attend(self, name: str, query: Array, values: list[Array]) -> Array:
        return softmax([self.bilinear(name, query, v) for v in values])  # eqs. 14, 15

    @staticmethod
    def _sum(weights: Array, values: list[Array]) -> Array:
        return np.asarray(sum(w * v for w, v in zip(weights, values, strict=True)))  # eq. 16
