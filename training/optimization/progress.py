"""Remembers how far a phase of training got, how good its weights are, and what its steps reported."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import torch
from torch import Tensor

from extractors.errors import ReelwordError


@dataclass(frozen=True)
class BestScore:
    """The score by which weights were kept."""

    metric: str  #: its name
    value: float
    where: str  #: the phase and step of the run
    #: All scores of the held-out items.
    scores: Mapping[str, float] = field(default_factory=dict)
    file: str = "best.safetensors"  #: of the run's folder, that is written


class NotFinite(ReelwordError, ArithmeticError, code="training_not_finite"):
    """A loss or the weights became infinite or no number: no step after it can learn."""

    hint = (
        "Train with a lower learning rate, or look for numbers that are none among the features; the run "
        "continues from its last validation."
    )


@dataclass
class PhaseProgress:
    """Remembers how far a phase got; it is saved with the network's state."""

    step: int = 0  #: that are taken
    best: float = -math.inf  #: the score of the weights that are kept
    held_out_loss: float = math.inf  #: theirs, of held-out captions, which decides between equal scores
    stale: int = 0  #: validations since a better one
    judged: int = -1  #: the step at which weights were judged last
    #: The scores of the checkpoints that are kept beside the best, by their files' names.
    kept: dict[str, float] = field(default_factory=dict)

    @classmethod
    def restore(cls, state: Mapping[str, Any]) -> Self:
        """Reads it from a saved state."""
        step = int(state["step"])
        return cls(
            step,
            float(state["best"]),
            state.get("held_out_loss", math.inf),
            state.get("stale", 0),
            state.get("judged", step),
            state.get("kept", {}),
        )

    def is_due(self, every: int, steps: int) -> bool:
        """Returns whether weights are to be judged now: once in ``every`` steps, and at the end."""
        return self.step > 0 and self.judged != self.step and (self.step % every == 0 or self.step == steps)

    def judge(self, score: float, loss: float = math.inf) -> str:
        """Remembers a score; returns what makes it the best ("score", "loss", "last"), "" where it is not.

        Of equal scores the least loss of held-out captions decides, as CIDEr-D of few items is often 0; of
        equals in both the last is the best, since what is trained may not show in what is judged.
        """
        self.judged = self.step
        by = "score" if score > self.best else ""
        if score == self.best and loss <= self.held_out_loss:
            by = "loss" if loss < self.held_out_loss else "last"
        self.stale = 0 if by in ("score", "loss") else self.stale + 1
        if by:
            self.best, self.held_out_loss = score, loss
        return by


class StepMeans:
    """Sums what steps report, and reads it once for all of them, since each reading waits for a GPU."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._steps = 0

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Adds the values of one step, each ()."""
        self._steps += 1
        for name, value in values.items():
            value = value.detach().float()
            self._sums[name] = self._sums[name] + value if name in self._sums else value

    def take(self) -> dict[str, float]:
        """Returns the means of the steps since it was called last."""
        names, sums = list(self._sums), list(self._sums.values())
        means = (
            (torch.stack([each.to(sums[0].device) for each in sums]) / self._steps).tolist() if sums else []
        )
        self._sums, self._steps = {}, 0
        return dict(zip(names, means, strict=True))


def check_loss(loss: float, place: str) -> None:
    """Checks a loss; place: where it was computed, for the error. Raises NotFinite."""
    if not math.isfinite(loss):
        raise NotFinite(f"The loss is {loss} at {place}.")
