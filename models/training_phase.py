"""Describes the phases of training that a captioner lists; training/optimization takes their steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from models.memory import Memory

#: From log-probabilities (R, V) and the true words (R,) to those that the next step is given.
NextWord: TypeAlias = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class PhaseBatch:
    """Holds what a captioner computes a loss of its own of."""

    #: B videos, as the captioner encoded them.
    memory: Memory
    #: (R, L) word ids, ended by <eos> and padded by -1, the captions of a video side by side.
    targets: Tensor
    #: Chooses what each step is given, by the recipe's share of true words.
    next_word: NextWord
    #: (R,), what the loss gave to be remembered of each caption when it was last trained on, NaN where it
    #: was not.
    remembered: Tensor


@dataclass(frozen=True, eq=False)
class PhaseLoss:
    """Holds a captioner's own loss of a batch."""

    #: (), to be descended, a mean over words.
    total: Tensor
    #: What is logged, each (): "loss", nats a word, and others.
    parts: Mapping[str, Tensor]
    #: (R,), to be remembered of each caption, by a phase that remembers.
    remembered: Tensor | None = None


# A captioner's functions are only given that captioner, and memories that it made, which no type can say:
# hence ``Any`` as their first parameter.
@dataclass(frozen=True)
class PhaseSpec:
    """Describes a phase; by default cross-entropy from the memory as it was encoded."""

    #: In logs, in a run's state, and in a recipe's ``phases``, which say how long it is.
    name: str = "cross_entropy"
    #: From captioner and batch to the loss; None for cross-entropy.
    loss: Callable[[Any, PhaseBatch], PhaseLoss] | None = None
    #: The memory that is learned from, where a captioner has several of a video; the generator draws.
    choose_memory: Callable[[Any, torch.Generator], Memory] | None = None
    #: The memory that captions are written from where weights are judged.
    judge_memory: Callable[[Any], Memory] | None = None
    #: From the best captioner of the phase before to the one that goes through this one.
    prepare: Callable[[Any], Any] | None = None
    #: The score by which weights are kept: of the held-out items, or of these as pseudo-videos of several
    #: shots.
    metric: Literal["cider", "shots_cider"] = "cider"
    #: Whether the weights that it starts from have to be surpassed.
    keeps_start: bool = False
    #: What the loss remembers of each caption, as a run's state calls it; empty where it remembers nothing.
    remembers: str = ""

    def choose(self, memory: Memory, generator: torch.Generator) -> Memory:
        """Chooses the memory that is learned from."""
        return memory if self.choose_memory is None else self.choose_memory(memory, generator)


#: Of a captioner that lists no other.
CROSS_ENTROPY = PhaseSpec()
