"""Keeps what rows (beams or draws) have written, and finds a row's attention when all are written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from models.memory import StepAttention, TensorRows
from models.vocabulary import EOS


@dataclass(frozen=True, eq=False)
class PartialCaptions(TensorRows):
    """Holds what R rows have written in t steps; a finished row continues with end tokens, free of cost."""

    tokens: Tensor  #: (R, t) word ids
    logprobs: Tensor  #: (R, t), without meaning after a row's end
    #: (R, t), for each step the row of *that* step which this row descends from, so that attention need not
    #: be moved when beams are
    steps: Tensor
    total: Tensor  #: (R,), the sum of log-probabilities
    length: Tensor  #: (R,), the number of tokens, the first end token included
    finished: Tensor  #: bool (R,)

    @classmethod
    def begin(cls, rows: int, device: torch.device) -> Self:
        """Makes ``rows`` rows without a word."""
        ids = torch.zeros(rows, 0, dtype=torch.long, device=device)
        zero = torch.zeros(rows, device=device)
        return cls(ids, ids.to(zero), ids, zero, zero, torch.zeros_like(zero, dtype=torch.bool))

    def append(self, parent: Tensor, step: Tensor, word: Tensor, logprob: Tensor, total: Tensor) -> Self:
        """Makes R' rows that each continue one of these by a word.

        Args:
            parent: (R',), the rows that are continued, repeats allowed.
            step: (R',), where they stood in the captioner's step; without meaning for finished ones.
            word: (R',) ids.
            logprob: (R',), the words' own log-probabilities.
            total: (R',), the sums with these words.
        """
        past = self.select(parent)
        return replace(
            self,
            tokens=_append_column(past.tokens, word),
            logprobs=_append_column(past.logprobs.to(logprob.dtype), logprob),
            steps=_append_column(past.steps, step),
            total=total,
            length=past.length + ~past.finished,
            finished=past.finished | (word == EOS),
        )


@dataclass(frozen=True, eq=False)
class SearchResult:
    """Holds what a search wrote, and the attention of each of its t steps."""

    captions: PartialCaptions  #: R rows, those of a video side by side
    #: one a step, of the rows that there were at that step; None for a step without attention
    attentions: Sequence[StepAttention | None]

    def gather_attention(self, steps: Tensor) -> StepAttention | None:
        """Follows rows back through the steps.

        steps: (R', t), ``PartialCaptions.steps`` of the rows that are wanted. Returns tensors (R', t, …) on
        the CPU, zeros for a step that had no attention; None where no step had any.
        """
        pairs = zip(self.attentions, steps.unbind(1), strict=True)
        gathered = [None if a is None else replace(a, loss=None).select(rows) for a, rows in pairs]
        some = next((a for a in gathered if a is not None), None)
        if some is None:
            return None
        zeros = _zeros_like(some)
        full = [a or zeros for a in gathered]
        spatial = [a.spatial for a in full if a.spatial is not None]
        return StepAttention(
            temporal=_stack_on_cpu([a.temporal for a in full]),
            spatial=_stack_on_cpu(spatial) if spatial else None,
            extras={name: _stack_on_cpu([a.extras[name] for a in full]) for name in some.extras},
        )


def _zeros_like(attention: StepAttention) -> StepAttention:
    return StepAttention(
        torch.zeros_like(attention.temporal),
        None if attention.spatial is None else torch.zeros_like(attention.spatial),
        {name: torch.zeros_like(value) for name, value in attention.extras.items()},
    )


def _stack_on_cpu(steps: list[Tensor]) -> Tensor:
    return torch.stack(steps, 1).detach().cpu()


def _append_column(past: Tensor, last: Tensor) -> Tensor:
    return torch.cat([past, last.unsqueeze(1)], 1)
