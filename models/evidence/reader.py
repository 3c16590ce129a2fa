"""Reads a caption of parts of its video: what evidence asks of a captioner, and how ours do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Features, Stream
from models.captioner import AnyCaptioner, Array, as_numpy
from models.evidence.restriction import VideoPart, restrict_to_moment, restrict_to_place
from models.likelihood import score_chosen_words


class CaptionReader(Protocol):
    """Reads one caption of L words where its video is a part of itself alone."""

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Computes log-probabilities of words, each after the true words before it.

        words: (P, L), which words are in question of each. Returns (P, L) natural logarithms, 0 where
        ``words`` is False.
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
        """Reads as ``CaptionReader`` says, parts of which words in question come late before the others."""
        lasts = words.shape[1] - words[:, ::-1].argmax(1)
        order = np.argsort(-lasts, kind="stable")
        scorer, videos = self.captioner.word_scorer, self._restrict([parts[k] for k in order])
        read = np.zeros(words.shape)
        with torch.inference_mode():
            memory = scorer.encode(videos)
            device = memory.times.device
            targets = torch.tensor([list(self.tokens)] * len(parts), device=device)
            chosen = torch.from_numpy(words[order]).to(device)
            read[order] = as_numpy(score_chosen_words(scorer, memory, targets, chosen))
        return read

    def _restrict(self, parts: Sequence[VideoPart]) -> list[dict[str, Stream]]:
        """Makes a video of each part."""
        names = {each.name for each in self.captioner.word_scorer.inputs}
        features = {name: stream for name, stream in self.features.items() if name in names}
        moments = {
            moment: restrict_to_moment(features, *self.times[moment].tolist())
            for moment in {part.moment for part in parts}
        }
        whole = self.captioner.needs_all_cells
        return [restrict_to_place(moments[part.moment], part, whole) for part in parts]
