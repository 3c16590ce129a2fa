"""Reads a caption of parts of its video: what evidence asks of a captioner, and how ours do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Features, View
from models.captioner import AnyCaptioner, Array, as_numpy
from models.evidence.restriction import restrict_to_moment, restrict_to_place
from models.likelihood import score_chosen_words


@dataclass(frozen=True)
class VideoPart:
    """Is one moment of a video, or one place of it: x0 y0 x1 y1 in [0, 1] of the picture, None for all."""

    moment: int
    place: View | None = None


class CaptionReader(Protocol):
    """Reads one caption of L words where its video is a part of itself alone."""

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Computes log-probabilities of words, each after the true words before it.

        Args:
            parts: P parts of the video, all read in one batch.
            words: (P, L), which words are in question of each.

        Returns:
            (P, L) natural logarithms, 0 where ``words`` is False.
        """
        ...


@dataclass(frozen=True, eq=False)
class FeatureReader:
    """Reads with a captioner of features.

    Attributes:
        captioner: Who wrote the caption.
        features: The video's streams by name.
        times: (T, 2) seconds, the moments.
        tokens: The ids of the words.
    """

    captioner: AnyCaptioner
    features: Features
    times: Array
    tokens: Sequence[int]

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Reads as ``CaptionReader`` says."""
        names = {each.name for each in self.captioner.inputs}
        features = {name: stream for name, stream in self.features.items() if name in names}
        moments = {
            part.moment: restrict_to_moment(features, *self.times[part.moment].tolist()) for part in parts
        }
        with torch.inference_mode():
            memory = self.captioner.encode(
                [
                    restrict_to_place(moments[part.moment], part.place)
                    if part.place
                    else moments[part.moment]
                    for part in parts
                ]
            )
            device = memory.times.device
            targets = torch.tensor([list(self.tokens)] * len(parts), device=device)
            chosen = torch.from_numpy(words).to(device)
            return as_numpy(score_chosen_words(self.captioner, memory, targets, chosen))
