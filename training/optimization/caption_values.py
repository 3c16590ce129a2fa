"""Remembers a value of each caption, for losses that compare a caption with itself an epoch before."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from training.batches.training_batch import CaptionedItem, TrainingBatch
from training.optimization.processes import ALONE, Processes


class CaptionValues:
    """Keeps the value that each caption of each training video had when it was last trained on.

    A few of a video's captions are drawn at a time, and how hard one is to write differs more between
    captions than between epochs: so a value is compared with the same caption's. ``values`` (captions,) are
    NaN for one that was not drawn yet; a run's state holds them. An epoch shows as many captions as there
    are, so that what is remembered is the last epoch's where the draws were even, and an older value, or
    none, elsewhere. All processes know all values: the next time another may have the video.
    """

    def __init__(self, items: Sequence[CaptionedItem], processes: Processes = ALONE) -> None:
        self._processes = processes
        firsts = accumulate((len(item.captions) for item in items), initial=0)
        self._first = {item.id: first for item, first in zip(items, firsts, strict=False)}
        self.values = torch.full((sum(len(item.captions) for item in items),), torch.nan)

    def get(self, batch: TrainingBatch) -> Tensor:
        """Returns (R,) values of the batch's captions, on the CPU."""
        return self.values[self._places(batch)]

    def remember(self, batch: TrainingBatch, values: Tensor) -> None:
        """Keeps values (R,) of the batch's captions."""
        for places, kept in self._processes.gather((self._places(batch), values.detach().float().cpu())):
            self.values[places] = kept

    def _places(self, batch: TrainingBatch) -> Tensor:
        each = len(batch.places) // len(batch.ids)
        owners = [name for name in batch.ids for _ in range(each)]
        return torch.tensor([self._first[name] + i for name, i in zip(owners, batch.places, strict=True)])
