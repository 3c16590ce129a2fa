"""The VATEX challenge's three captioners and its embedding's loss, one number after another, in numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from models.captioners.vatex.config import VatexConfig
from tests.reference.layers import Array, Layers, softmax


@dataclass(frozen=True, eq=False)
class StepReference:
    """alpha: over what was attended to, in the order it was given; empty for vanilla."""

    log_probs: Array
    alpha: Array


class VatexReference(Layers):
    def __init__(self, weights: Mapping[str, Array], config: VatexConfig) -> None:
        super().__init__(weights)
        self.config = config

    def caption(self, pooled: Array, attended: Sequence[Array], words: Sequence[int]) -> list[StepReference]:
        """pooled: image, motion and audio, their means over time side by side; attended: V^t, V^o or []."""
        v_bar = self.linear("embed_global", pooled)
        v = [self.linear("embed_memory", x) for x in attended]
        h_1 = c_1 = h_2 = c_2 = np.zeros(self.config.hidden)
        steps = []
        for word in words:
            first = np.concatenate([v_bar, self.word(word), h_2])
            h_1, c_1 = self.lstm("lstm_1", first, h_1, c_1)  # eq. 1
            alpha, context = np.zeros(0), v_bar
            if v:
                alpha = softmax([self.additive("attention", h_1, v_i) for v_i in v])  # eq. 2
                context = np.asarray(sum(a * v_i for a, v_i in zip(alpha, v, strict=True)))  # eq. 3
            h_2, c_2 = self.lstm("lstm_2", np.concatenate([context, h_1]), h_2, c_2)  # eq. 4
            steps.append(StepReference(self.log_probs(h_2), alpha))  # eq. 5
        return steps


def hinge_loss(videos: Array, sentences: Array, margin: float) -> float:
    """VSE++'s max of hinges over every true pair; sentence s belongs to video s // K."""
    per_video, losses = len(sentences) // len(videos), []
    for s, sentence in enumerate(sentences):
        own = s // per_video
        true = videos[own] @ sentence
        other_sentences = [videos[own] @ t for k, t in enumerate(sentences) if k // per_video != own]
        other_videos = [video @ sentence for v, video in enumerate(videos) if v != own]
        losses.append(
            max(0.0, margin + max(other_sentences) - true) + max(0.0, margin + max(other_videos) - true)
        )
    return float(np.mean(losses))
