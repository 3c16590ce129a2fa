"""What each training video earned when it was last trained on (refocus, eq. 20)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class LastRewards:
    """``values`` (items,), NaN for a video that was not seen yet; a run's state holds them.

    A video comes once an epoch, so that what is found is R_{e-1}. An epoch ends with the last whole batch:
    a video that it left out has an older reward, or none.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._place = {name: i for i, name in enumerate(ids)}
        self.values = torch.full((len(ids),), torch.nan)

    def of(self, ids: Sequence[str]) -> Tensor:
        """(B,)"""
        return self.values[self._places(ids)]

    def remember(self, ids: Sequence[str], rewards: Tensor) -> None:
        """rewards: (B,)"""
        self.values[self._places(ids)] = rewards.detach().float().cpu()

    def _places(self, ids: Sequence[str]) -> Tensor:
        return torch.tensor([self._place[name] for name in ids])
