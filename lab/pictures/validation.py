"""Scores captioners on held-out pictures, as they are or among other shots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lab.pictures.picture_batches import TrainingItem
from lab.pictures.pseudo_video import Sample, Shots, draw_sample, sample_whole, stack_samples
from models.decoding.decode import DecodingOptions
from models.inputs import Batch
from training.optimization.validation import Validation

#: The pseudo-videos of every validation are the same.
SHOTS_SEED = 2019


class PictureValidation(Validation[TrainingItem]):
    """On pictures as they are, or with ``shots`` on pseudo-videos like those that are trained on."""

    group = 50

    def __init__(
        self, items: Sequence[TrainingItem], options: DecodingOptions, shots: Shots | None = None
    ) -> None:
        super().__init__(items, options)
        self.shots = shots

    def load_group(self, start: int) -> Mapping[str, Batch]:
        """Returns the group's samples, which are of one length."""
        return stack_samples(self._draw_samples(start))

    def _draw_samples(self, start: int) -> list[Sample]:
        group = self.items[start : start + self.group]
        if self.shots is None:
            return [sample_whole(item.pictures) for item in group]
        rng = np.random.default_rng((SHOTS_SEED, start))
        steps, others = self.shots.draw_length(rng), [item.pictures for item in self.items]
        return [draw_sample(item.pictures, others, steps, self.shots, rng) for item in group]
