"""How likely given captions are, word by word: what losses over whole captions are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.captioner import Captioner, Memory, StepAttention

#: From log-probabilities (R, V) and the true words (R,) to those that the next step is given.
NextWord = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Forced:
    """log_p: (R, L), 0 where ``valid`` (R, L) is False; attentions: one a step."""

    log_p: Tensor
    valid: Tensor
    attentions: list[StepAttention | None]


def teacher_forced(
    captioner: Captioner[Any, Any], memory: Memory, targets: Tensor, next_word: NextWord | None = None
) -> Forced:
    """targets: (R, L) word ids, ended by <eos> and padded by -1; the captions of a video side by side.

    next_word: for scheduled sampling; by default every step is given the true word.
    """
    rows = targets.shape[0] // memory.size
    state, word = captioner.start(memory, rows), captioner.first_word(memory, rows)
    valid, known = targets >= 0, targets.clamp(min=0)
    log_p, attentions = [], []
    for i in range(targets.shape[1]):
        log_probs, state, attention = captioner.step(state, word, memory)
        word = known[:, i]
        log_p.append(log_probs.gather(1, word.unsqueeze(1)).squeeze(1) * valid[:, i])
        attentions.append(attention)
        word = word if next_word is None else next_word(log_probs, word)
    return Forced(torch.stack(log_p, 1), valid, attentions)


@torch.no_grad()
def teacher_distributions(
    captioner: Captioner[Any, Any], memory: Memory, targets: Tensor, kept: int
) -> torch.return_types.topk:
    """The ``kept`` most probable words at every place of targets (R, L): values, indices (R, L, kept)."""
    rows = targets.shape[0] // memory.size
    state, word = captioner.start(memory, rows), captioner.first_word(memory, rows)
    tops = []
    for i in range(targets.shape[1]):
        log_probs, state, _ = captioner.step(state, word, memory)
        word = targets[:, i].clamp(min=0)
        tops.append(log_probs.exp().topk(kept, dim=1))
    values, indices = zip(*tops, strict=True)
    return torch.return_types.topk((torch.stack(values, 1), torch.stack(indices, 1)))
