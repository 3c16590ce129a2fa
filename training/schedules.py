"""How the learning rate moves, as a share of the recipe's."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict


@dataclass(frozen=True)
class Moment:
    """done: the share of the phase's steps that are taken. epoch: how many epochs those are."""

    done: float
    epoch: float


class Cosine(BaseModel):
    """Half a cosine over the phase, down to a hundredth."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["cosine"] = "cosine"

    def share(self, at: Moment) -> float:
        return max(0.5 * (1 + math.cos(math.pi * at.done)), 0.01)


class Decay(BaseModel):
    """Times ``factor`` after every ``epochs``; with a factor of 1 it never moves."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["decay"] = "decay"
    factor: float = 1.0
    epochs: float = 1.0

    def share(self, at: Moment) -> float:
        return float(self.factor ** (at.epoch // self.epochs))


class HoldAndDrop(BaseModel):
    """From ``first`` in a line to one over ``warm`` epochs, held there, and ``last`` from ``drop`` on."""

    model_config = ConfigDict(frozen=True)
    kind: Literal["hold_and_drop"] = "hold_and_drop"
    first: float
    warm: float
    drop: float
    last: float

    def share(self, at: Moment) -> float:
        if at.epoch >= self.drop:
            return self.last
        return self.first + (1 - self.first) * min(1.0, at.epoch / self.warm)


Schedule = Cosine | Decay | HoldAndDrop
CONSTANT = Decay()
