"""The held-out pictures as they are shown to every row: stills, and one of several shots.

On a still nothing that looks along time can show. On the second sheet each picture is a shot of a
pseudo-video (``training/batches/pseudo_video.py``) between shots of other held-out pictures, its place
uniform.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from training.ablations.row import SheetName
from training.batches.picture_batches import TrainingItem
from training.batches.pseudo_video import Sample, Shots, sample, whole

GROUP = 50
#: Steps of a sample on each sheet; ablations are trained on up to as many.
STEPS: dict[SheetName, int] = {"stills": 1, "shots": 6}
SEED = 2020
ALWAYS_BETWEEN_OTHERS = Shots(lengths=(1.0,), distractors=1.0)


@dataclass(frozen=True, eq=False)
class JudgedPictures:
    """Samples are a function of SEED and an item's place, so that every row is shown the same."""

    items: Sequence[TrainingItem]
    steps: int

    @classmethod
    def of(cls, name: SheetName, items: Sequence[TrainingItem]) -> JudgedPictures:
        return cls(items, STEPS[name])

    def groups(self) -> Iterator[tuple[Sequence[TrainingItem], list[Sample]]]:
        for first in range(0, len(self.items), GROUP):
            places = range(first, min(first + GROUP, len(self.items)))
            yield self.items[first : first + GROUP], [self.sample(place) for place in places]

    def sample(self, place: int) -> Sample:
        item = self.items[place]
        if self.steps == 1:
            return whole(item.pictures)
        rng = np.random.default_rng((SEED, place))
        drawn = rng.integers(1, len(self.items), size=2)  # never the item itself
        others = [self.items[(place + int(step)) % len(self.items)].pictures for step in drawn]
        return sample(item.pictures, others, self.steps, ALWAYS_BETWEEN_OTHERS, rng)
