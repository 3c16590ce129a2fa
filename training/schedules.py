"""How the learning rate moves, as a share of the recipe's."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict


class Cosine(BaseModel):
    """Half a cosine over the phase, down to a hundredth."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["cosine"] = "cosine"

    def share(self, done: float, epoch: float) -> float:
        """done: share of the phase's steps; epoch: how many were begun and how far."""
        return cosine(done)


class Constant(BaseModel):
    """Always the same."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["constant"] = "constant"

    def share(self, done: float, epoch: float) -> float:
        return 1.0


class Decay(BaseModel):
    """Times ``factor`` after every ``epochs``."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["decay"] = "decay"
    factor: float
    epochs: float

    def share(self, done: float, epoch: float) -> float:
        return float(self.factor ** (epoch // self.epochs))


class HoldAndDrop(BaseModel):
    """From ``first`` in a straight line to one over ``warm`` epochs, held there, ``last`` from ``drop`` on."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["hold_and_drop"] = "hold_and_drop"
    first: float
    warm: float
    drop: float
    last: float

    def share(self, done: float, epoch: float) -> float:
        if epoch >= self.drop:
            return self.last
        return self.first + (1 - self.first) * min(1.0, epoch / self.warm)


Schedule = Cosine | Constant | Decay | HoldAndDrop


def cosine(share: float) -> float:
    return max(0.5 * (1 + math.cos(math.pi * share)), 0.01)
