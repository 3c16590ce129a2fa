"""From rows of tokens to finished captions with scores and attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.captioner import Rows, StepAttention
from models.decoding.options import LengthPenalty
from models.vocabulary import EOS


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """One caption of one video.

    tokens: ids without the end token. logprobs: one a token, of the distribution searched (after the
    temperature, before any constraint). end_logprob: the end token's, None where the caption was cut.
    score: their sum over the length penalty. attention: tensors (L, …) on the CPU for the L tokens.
    """

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    end_logprob: float | None
    score: float
    finished: bool
    attention: StepAttention | None


@dataclass(frozen=True, eq=False)
class PartialCaptions(Rows):
    """What R rows have written in t steps. A finished row goes on with end tokens that cost nothing.

    tokens, logprobs: (R, t), the latter without meaning after a row's end. steps: (R, t), for each
    step the row of *that* step which this row descends from, so that attention need not be moved when
    beams are. total, length: (R,), the sum of log-probabilities and the number of tokens, the first end
    token included. finished: bool (R,).
    """

    tokens: Tensor
    logprobs: Tensor
    steps: Tensor
    total: Tensor
    length: Tensor
    finished: Tensor

    @classmethod
    def nothing(cls, rows: int, device: torch.device) -> PartialCaptions:
        ids = torch.zeros(rows, 0, dtype=torch.long, device=device)
        zero = torch.zeros(rows, device=device)
        return cls(ids, ids.to(zero), ids, zero, zero, torch.zeros_like(zero, dtype=torch.bool))

    def then(self, parent: Tensor, word: Tensor, logprob: Tensor, total: Tensor) -> PartialCaptions:
        """The rows that continue rows ``parent`` (R',) by ``word``; all (R',)."""
        past = self.select(parent)
        return PartialCaptions(
            tokens=_append(past.tokens, word),
            logprobs=_append(past.logprobs.to(logprob.dtype), logprob),
            steps=_append(past.steps, parent),
            total=total,
            length=past.length + ~past.finished,
            finished=past.finished | (word == EOS),
        )


def hypotheses(
    written: PartialCaptions,
    attentions: Sequence[StepAttention | None],
    penalty: LengthPenalty,
    videos: int,
    count: int,
) -> list[list[Hypothesis]]:
    """The ``count`` best rows of each video by normalised score; of equal ones the earlier row first.

    Raises ValueError where the captioner gave NaN.
    """
    score = written.total / penalty.divisor(written.length.to(written.total.dtype))
    if score.isnan().any():
        raise ValueError("the captioner gave log-probabilities that are not numbers")
    ranked = score.view(videos, -1).sort(dim=1, descending=True, stable=True).indices[:, :count]
    rows = ranked + torch.arange(videos, device=ranked.device).unsqueeze(1) * (score.shape[0] // videos)
    index = rows.flatten()
    best = written.select(index)
    looked = _attention(best.steps, attentions)
    found = _to_hypotheses(best, score[index].tolist(), looked)
    each = ranked.shape[1]
    return [[h for h in found[v * each : (v + 1) * each] if h.score > -torch.inf] for v in range(videos)]


def _to_hypotheses(
    best: PartialCaptions, scores: list[float], looked: StepAttention | None
) -> list[Hypothesis]:
    tokens, logprobs = best.tokens.tolist(), best.logprobs.tolist()
    lengths, finished = best.length.long().tolist(), best.finished.tolist()
    found = []
    for row, (length, ended) in enumerate(zip(lengths, finished, strict=True)):
        words = length - 1 if ended else length
        found.append(
            Hypothesis(
                tokens=tuple(tokens[row][:words]),
                logprobs=tuple(logprobs[row][:words]),
                end_logprob=logprobs[row][words] if ended else None,
                score=scores[row],
                finished=ended,
                attention=None if looked is None else _words_of(looked, row, words),
            )
        )
    return found


def _attention(steps: Tensor, attentions: Sequence[StepAttention | None]) -> StepAttention | None:
    """Tensors (R, t, …) on the CPU: what each step's row saw, zeros for a step that had no attention."""
    pairs = zip(attentions, steps.unbind(1), strict=True)
    seen = [None if a is None else replace(a, loss=None).select(rows) for a, rows in pairs]
    some = next((a for a in seen if a is not None), None)
    if some is None:
        return None
    nothing = StepAttention(
        torch.zeros_like(some.temporal),
        None if some.spatial is None else torch.zeros_like(some.spatial),
        {name: torch.zeros_like(value) for name, value in some.extras.items()},
    )
    full = [a or nothing for a in seen]
    spatial = [a.spatial for a in full if a.spatial is not None]
    return StepAttention(
        temporal=_to_cpu([a.temporal for a in full]),
        spatial=_to_cpu(spatial) if spatial else None,
        extras={name: _to_cpu([a.extras[name] for a in full]) for name in some.extras},
    )


def _to_cpu(steps: list[Tensor]) -> Tensor:
    return torch.stack(steps, 1).detach().cpu()


def _words_of(looked: StepAttention, row: int, words: int) -> StepAttention:
    return StepAttention(
        temporal=looked.temporal[row, :words],
        spatial=None if looked.spatial is None else looked.spatial[row, :words],
        extras={name: value[row, :words] for name, value in looked.extras.items()},
    )


def _append(past: Tensor, last: Tensor) -> Tensor:
    return torch.cat([past, last.unsqueeze(1)], 1)
