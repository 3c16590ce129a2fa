"""Soft targets of a batch: a teacher's most probable words in every place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from models.captioner import Rows


@dataclass(frozen=True, eq=False)
class Soft(Rows):
    """words: (R, L, k) ids, shares: (R, L, k) of a probability of one; 0 where a caption has ended."""

    words: Tensor
    shares: Tensor

    def loss(self, log_probs: Tensor, place: int) -> Tensor:
        """(R,) cross-entropy in nats of log_probs (R, V) against the teacher at word ``place``."""
        shares = self.shares[:, place]
        kept = (shares * log_probs.gather(1, self.words[:, place])).sum(1)
        return -kept - (1 - shares.sum(1)) * log_probs.mean(1)
