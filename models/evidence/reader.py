"""Reads a caption of parts of its video: what evidence asks of a captioner, and how ours do it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from extractors.features import Features, View
from models.captioner import AnyCaptioner, Array, as_numpy
from models.evidence.restriction import restrict_to_moment, restrict_to_place
from models.likelihood import teacher_force


class CaptionReader(Protocol):
    """Reads one caption of L words of its video, restricted to a moment or to a place of one."""

    def read_moments(self, moments: Sequence[int]) -> Array:
        """Computes (M, L) log-probabilities of the words where the video is each of M moments alone."""
        ...

    def read_places(self, places: Sequence[tuple[int, View]]) -> Array:
        """Computes (P, L) of the words where the video is one place of one moment alone.

        places: moments, and in each x0 y0 x1 y1 in [0, 1] of the picture.
        """
        ...


@dataclass(frozen=True, eq=False)
class FeatureReader:
    """Reads with a captioner of features, all parts of the video in one batch.

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

    def read_moments(self, moments: Sequence[int]) -> Array:
        """Reads as ``CaptionReader`` says."""
        return self._read([self._restrict(moment) for moment in moments])

    def read_places(self, places: Sequence[tuple[int, View]]) -> Array:
        """Reads as ``CaptionReader`` says."""
        return self._read([restrict_to_place(self._restrict(moment), place) for moment, place in places])

    def _restrict(self, moment: int) -> Features:
        start, end = self.times[moment]
        return restrict_to_moment(self.features, float(start), float(end))

    def _read(self, videos: Sequence[Features]) -> Array:
        with torch.inference_mode():
            memory = self.captioner.encode(videos)
            targets = torch.tensor([list(self.tokens)] * len(videos), device=memory.times.device)
            return as_numpy(teacher_force(self.captioner, memory, targets).log_p)
