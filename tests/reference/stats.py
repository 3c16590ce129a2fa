"""STaTS word by word, video by video, frame by frame, region by region, in float64 numpy.

Written from the paper's equations (Cherian et al. 2020), not from ``models.captioners.stats``, whose
parameters it reads by name. One caption of one video at a time; what a mask hides is simply not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.captioners.stats.config import STaTSConfig

Array = NDArray[np.float64]
Video = list[list[tuple[int, Array]]]  # frames → (region's number, its features), visible ones alone


@dataclass(frozen=True, eq=False)
class StepReference:
    """What one step gives; ``temporal`` and ``spatial`` are of the first stream, 0 where nothing is seen."""

    log_probs: Array  # (V,)
    temporal: Array  # (T,)
    spatial: Array  # (T, N)
    st_spatial: Array  # (N,)
    branch: Array  # (streams, 2)
    ranking: float


@dataclass(frozen=True, eq=False)
class LookReference:
    """One stream's part of a step."""

    x_hat: Array
    temporal: Array
    spatial: Array
    st_spatial: Array
    branch: Array
    ranking: float


def softmax(scores: Sequence[float]) -> Array:
    exponentials = np.exp(np.array(scores) - max(scores))
    return np.asarray(exponentials / exponentials.sum())


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


class StatsReference:
    """Slow and plain. ``training`` chooses eq. 9's soft form over its argmax."""

    def __init__(self, weights: Mapping[str, Array], config: STaTSConfig, training: bool) -> None:
        self.weights, self.config, self.training = weights, config, training

    def caption(
        self, streams: Sequence[Array], masks: Sequence[NDArray[np.bool_]], words: Sequence[int], label: int
    ) -> list[StepReference]:
        """streams: (T, N, C) each; words: what each step is given, <bos> first."""
        videos = [self._embedded(i, x, mask) for i, (x, mask) in enumerate(zip(streams, masks, strict=True))]
        h = c = np.zeros(self.config.hidden)
        past: list[Array] = []
        steps = []
        for word in words:
            w = self.weights["word_embedding.weight"][word] * np.sqrt(self.config.words)
            past.append(w)
            query = self._linear("query", np.concatenate([h, self._self_attention(past)]))
            looks = [self._look(i, query, video, streams[i].shape[:2]) for i, video in enumerate(videos)]
            inputs = [w, *(look.x_hat for look in looks)]
            if self.config.classes:
                inputs.append(self.weights["label.weight"][label])
            h, c = self._lstm("decoder", np.concatenate(inputs), h, c)
            steps.append(self._step(h, looks))
        return steps

    def _step(self, h: Array, looks: list[LookReference]) -> StepReference:
        projected = self._linear("project", h) if self.config.tie_words else h
        logits = self._linear("output", projected)
        return StepReference(
            log_probs=np.log(softmax(logits.tolist())),
            temporal=looks[0].temporal,
            spatial=looks[0].spatial,
            st_spatial=looks[0].st_spatial,
            branch=np.array([look.branch for look in looks]),
            ranking=float(np.mean([look.ranking for look in looks])),
        )

    def _embedded(self, stream: int, values: Array, mask: NDArray[np.bool_]) -> Video:
        frames = []
        for t in range(values.shape[0]):
            seen = [j for j in range(values.shape[1]) if mask[t, j]]
            frames.append(
                [(j, np.maximum(self._linear(f"streams.{stream}.embed.0", values[t, j]), 0)) for j in seen]
            )
        return frames

    def _self_attention(self, past: list[Array]) -> Array:
        """The last word looks at all words so far; no later word exists yet."""
        query = self._linear("word_query", past[-1])
        scores = [query @ self._linear("word_key", w) / np.sqrt(self.config.attention) for w in past]
        values = [self._linear("word_value", w) for w in past]
        return np.asarray(sum(e * v for e, v in zip(softmax(scores), values, strict=True)))

    def _look(self, stream: int, h: Array, video: Video, shape: tuple[int, ...]) -> LookReference:
        name = f"streams.{stream}"
        valid = [t for t, frame in enumerate(video) if frame]
        spatio_temporal = {"frames": self._over_frames, "everything": self._over_everything}.get(
            self.config.pooling, self._spatio_temporal
        )
        x_ST, st, ranking = spatio_temporal(name, h, video, valid, shape)
        x_TS, temporal, ts = self._temporo_spatial(name, h, video, valid, shape)
        branch = self._branch(name, h, x_ST, x_TS)
        x_hat = np.tanh(branch[0] * x_ST + branch[1] * x_TS)  # eq. 12
        spatial = branch[0] * st + branch[1] * ts
        return LookReference(x_hat, temporal, spatial, st.sum(0) / len(valid), branch, ranking)

    def _spatio_temporal(
        self, name: str, h: Array, video: Video, valid: list[int], shape: tuple[int, ...]
    ) -> tuple[Array, Array, float]:
        frames = [video[t] for t in valid]
        grid = self.config.streams[int(name.split(".")[1])].regions == "grid"
        weights = self._one_map(name, h, frames) if grid else self._map_per_frame(name, h, frames)
        attended, shown = [], np.zeros(shape)
        for t, frame, e in zip(valid, frames, weights, strict=True):
            attended.append(sum(e_j * x for e_j, (_, x) in zip(e, frame, strict=True)))
            for e_j, (j, _) in zip(e, frame, strict=True):
                shown[t, j] = e_j
        pooled, loss = self._ranked(f"{name}.ranked", [np.asarray(x) for x in attended])
        return pooled, shown, loss

    def _over_frames(
        self, name: str, h: Array, video: Video, valid: list[int], shape: tuple[int, ...]
    ) -> tuple[Array, Array, float]:
        """Table 2: "average pooling of spatial features and then temporal pooling of them"."""
        means = [np.asarray(sum(x for _, x in video[t]) / len(video[t])) for t in valid]
        weights = softmax([self._att(f"{name}.st_attention", h, mean) for mean in means])
        shown = np.zeros(shape)
        for t in valid:
            for j, _ in video[t]:
                shown[t, j] = 1 / len(video[t])
        attended = np.asarray(sum(a * mean for a, mean in zip(weights, means, strict=True)))
        return self._linear(f"{name}.pooled", attended), shown, 0.0

    def _over_everything(
        self, name: str, h: Array, video: Video, valid: list[int], shape: tuple[int, ...]
    ) -> tuple[Array, Array, float]:
        """Table 2: "temporally attending over all spatio-temporal features"."""
        places = [(t, j, x) for t in valid for j, x in video[t]]
        weights = softmax([self._att(f"{name}.st_attention", h, x) for _, _, x in places])
        shown, attended = np.zeros(shape), np.zeros(self.config.embedded)
        for a, (t, j, x) in zip(weights, places, strict=True):
            shown[t, j] = a
            attended += a * x
        for t in valid:
            shown[t] /= shown[t].sum()
        return self._linear(f"{name}.pooled", attended), shown, 0.0

    def _one_map(self, name: str, h: Array, frames: Video) -> list[Array]:
        """Eq. 3 over the mean of every cell, repeated for all frames (the overestimated region)."""
        scores = []
        for j in range(len(frames[0])):
            mean = sum(frame[j][1] for frame in frames) / len(frames)
            scores.append(self._att(f"{name}.st_attention", h, np.asarray(mean)))
        return [softmax(scores)] * len(frames)

    def _map_per_frame(self, name: str, h: Array, frames: Video) -> list[Array]:
        """Eq. 3 as printed, for regions that have no place in common."""
        return [softmax([self._att(f"{name}.st_attention", h, x) for _, x in frame]) for frame in frames]

    def _ranked(self, name: str, xs: list[Array]) -> tuple[Array, float]:
        """Eqs. 6 to 8, and the frames' mean added, or the one or the other alone (Table 2)."""
        h = c = np.zeros(self.config.embedded)
        for x in [] if self.config.pooling == "mean" else xs:
            h, c = self._lstm(f"{name}.lstm", x, h, c)
        losses = []
        for t in range(1, len(xs)):
            zeta = h @ xs[t - 1] + self.config.margin - h @ xs[t]
            losses.append(np.log1p(np.exp(zeta)))
        mean = np.asarray(sum(xs) / len(xs))
        if self.config.pooling == "mean":
            return self._linear(f"{name}.mean", mean), 0.0
        pooled = self._linear(f"{name}.ranked", h)
        if self.config.pooling == "mean_ranked":
            pooled = pooled + self._linear(f"{name}.mean", mean)
        return pooled, float(np.mean(losses)) if losses else 0.0

    def _temporo_spatial(
        self, name: str, h: Array, video: Video, valid: list[int], shape: tuple[int, ...]
    ) -> tuple[Array, Array, Array]:
        """Eqs. 9 to 11."""
        scores = []
        for t in valid:
            mean = sum(x for _, x in video[t]) / len(video[t])
            scores.append(self._att(f"{name}.frame_attention", h, np.asarray(mean)))
        soft = softmax([score / self.config.temperature for score in scores])
        chosen = soft if self.training else np.eye(len(valid))[int(np.argmax(scores))]
        temporal, spatial, x_TS = np.zeros(shape[0]), np.zeros(shape), np.zeros(self.config.embedded)
        for k, t in enumerate(valid):
            temporal[t] = soft[k]
            e = softmax([self._att(f"{name}.ts_attention", h, x) for _, x in video[t]])
            for e_j, (j, x) in zip(e, video[t], strict=True):
                spatial[t, j] = e_j
                x_TS += chosen[k] * e_j * x
        return x_TS, temporal, spatial

    def _branch(self, name: str, h: Array, x_ST: Array, x_TS: Array) -> Array:
        if self.config.branches != "stats":
            return np.array([1.0, 0.0] if self.config.branches == "st" else [0.0, 1.0])
        q = self._linear(f"{name}.W_h", h)
        beta_1 = self._linear(f"{name}.w_ST", np.tanh(self._linear(f"{name}.W_ST", x_ST) + q))
        beta_2 = self._linear(f"{name}.w_TS", np.tanh(self._linear(f"{name}.W_TS", x_TS) + q))
        return softmax([float(beta_1[0]), float(beta_2[0])])

    def _att(self, name: str, h: Array, x: Array) -> float:
        """Eq. 2."""
        energy = np.tanh(self._linear(f"{name}.W_h", h) + self._linear(f"{name}.W_x", x))
        return float(self._linear(f"{name}.w", energy)[0])

    def _linear(self, name: str, x: Array) -> Array:
        bias = self.weights.get(f"{name}.bias")
        product = self.weights[f"{name}.weight"] @ x
        return np.asarray(product if bias is None else product + bias)

    def _lstm(self, name: str, x: Array, h: Array, c: Array) -> tuple[Array, Array]:
        """torch's order of gates: input, forget, candidate, output."""
        w = self.weights
        gates = w[f"{name}.weight_ih"] @ x + w[f"{name}.bias_ih"]
        gates = gates + w[f"{name}.weight_hh"] @ h + w[f"{name}.bias_hh"]
        i, f, g, o = np.split(gates, 4)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
