"""How likely given captions are, word by word: what losses over whole captions are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import AnyCaptioner, Memory, StepAttention
from models.vocabulary import EOS

#: From log-probabilities (R, V) and the true words (R,) to those that the next step is given.
NextWord = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Forced:
    """log_p: (R, L), 0 where ``valid`` (R, L) is False; attentions: one a step."""

    log_p: Tensor
    valid: Tensor
    attentions: list[StepAttention | None]


def teacher_forced(
    captioner: AnyCaptioner, memory: Memory, targets: Tensor, next_word: NextWord | None = None
) -> Forced:
    """targets: (R, L) word ids, ended by <eos> and padded by -1; the captions of a video side by side.

    next_word: for scheduled sampling; by default every step is given the true word.
    """
    valid, log_p, attentions = targets >= 0, [], []
    for i, (log_probs, word, attention) in enumerate(_steps(captioner, memory, targets, next_word)):
        log_p.append(log_probs.gather(1, word.unsqueeze(1)).squeeze(1) * valid[:, i])
        attentions.append(attention)
    return Forced(torch.stack(log_p, 1), valid, attentions)


@torch.no_grad()
def teacher_distributions(
    captioner: AnyCaptioner, memory: Memory, targets: Tensor, kept: int
) -> torch.return_types.topk:
    """The ``kept`` most probable words at every place of targets (R, L): values, indices (R, L, kept)."""
    tops = [log_probs.exp().topk(kept, dim=1) for log_probs, _, _ in _steps(captioner, memory, targets)]
    values, indices = zip(*tops, strict=True)
    return torch.return_types.topk((torch.stack(values, 1), torch.stack(indices, 1)))


def _steps(
    captioner: AnyCaptioner, memory: Memory, targets: Tensor, next_word: NextWord | None = None
) -> Iterator[tuple[Tensor, Tensor, StepAttention | None]]:
    """At every place of targets (R, L): log-probabilities (R, V), the true words (R,), the attention."""
    rows = targets.shape[0] // memory.size
    state, word = captioner.start(memory, rows), captioner.first_word(memory, rows)
    for true in targets.clamp(min=0).unbind(1):
        log_probs, state, attention = captioner.step(state, word, memory)
        yield log_probs, true, attention
        word = true if next_word is None else next_word(log_probs, true)


def pad_captions(captions: list[list[int]], max_length: int) -> Tensor:
    """(R, L) word ids, each ended by <eos>, padded by -1; longer captions are cut and have no end."""
    rows = [[*ids, EOS][:max_length] for ids in captions]
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [-1] * (longest - len(row)) for row in rows])
