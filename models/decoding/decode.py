"""Turns encoded videos into captions: one loop for every captioner, for training and for the service.

The rest of the room, in the order in which a decoding goes through it:

* ``options.py`` says what can be asked for: beams or draws, lengths.
* ``length_penalty.py`` weighs captions of different lengths against each other.
* ``constraints.py`` forbids words, as minus infinity in their scores.
* ``beam.py`` searches the likeliest captions; ``sampling.py`` takes the likeliest word or draws one at each
  step. Both write rows of ``partial_captions.py``, which finds the attention of a row afterwards.
* ``decode``, below, reads what a captioner recalls beside, ranks all rows and makes a ``Hypothesis`` of each
  that is returned.
* ``written_captions.py`` turns hypotheses into words with attention on the video's own clock and places.

The search calls three methods of ``Captioner`` and knows nothing of what is behind them. It has no Python
loop over videos or beams, moves no attention while beams are reordered, and keeps the dtype of the
captioner's log-probabilities, so that a float64 captioner is searched in float64.
models/combining/ensemble.py decodes several checkpoints as one captioner.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.captioner import Captioner, Judgement
from models.decoding.beam import search_beams
from models.decoding.constraints import Constraints
from models.decoding.length_penalty import LengthPenalty
from models.decoding.options import DecodingOptions
from models.decoding.partial_captions import PartialCaptions, SearchResult
from models.decoding.sampling import sample, search_by_sampling, search_greedily
from models.likelihood import teacher_force
from models.memory import Memory, StepAttention
from models.vocabulary import EOS

__all__ = ["DecodingOptions", "Hypothesis", "decode", "sample"]


@dataclass(frozen=True, eq=False)
class Hypothesis:
    """Holds one caption of one video, as ids with scores and attention."""

    tokens: tuple[int, ...]  #: ids without the end token
    #: one a token, natural logarithms in the distribution searched (after the temperature, before any
    #: constraint)
    logprobs: tuple[float, ...]
    end_logprob: float | None  #: the end token's, None where the caption was cut
    score: float  #: their sum over the length penalty
    finished: bool  #: whether it ended by itself
    #: tensors (L, …) on the CPU for the L tokens; None where none was asked for
    attention: StepAttention | None
    merit: float = 0.0  #: by which its captioner ranks it; the score where it has no other opinion
    #: how often captions alike are right, in [0, 1]; None where its captioner cannot tell
    confidence: float | None = None
    #: whether it was not searched but recalled, a sentence that was written in advance
    recalled: bool = False


@torch.no_grad()
def decode(
    captioner: Captioner,
    memory: Memory,
    options: DecodingOptions,
    generator: torch.Generator | None = None,
) -> list[list[Hypothesis]]:
    """Writes the captions of B videos and ranks them.

    Args:
        captioner: Writes the words.
        memory: The B videos, as that captioner encoded them.
        options: How words are chosen, and how many captions are returned.
        generator: Draws for "sample", on the memory's device, in place of one made from ``options.seed``.

    Returns:
        For each video its ``options.num_captions`` captions, best first; fewer where the vocabulary allows
        fewer.

    Raises:
        ValueError: The captioner gave NaN.
    """
    constraints = Constraints.from_options(options, captioner.vocabulary, memory.times.device)
    if options.method == "beam":
        search = search_beams(captioner, memory, options, constraints)
    elif options.method == "greedy":
        search = search_greedily(captioner, memory, options, constraints)
    else:
        if generator is None and options.seed is not None:
            # one a call: the draws then do not depend on what else this process has drawn
            generator = torch.Generator(memory.times.device).manual_seed(options.seed)
        search = search_by_sampling(captioner, memory, options, constraints, generator)
    written = _judge(captioner, memory, search, options)
    # who asks for greedy or drawn words wants to see what the captioner itself writes
    recalled = captioner.recall(memory, options.max_length) if options.method == "beam" else None
    if recalled is None:
        return written
    read = _judge(captioner, memory, _read_captions(captioner, memory, recalled), options)
    return [_merge(*each, options.num_captions) for each in zip(written, read, strict=True)]


def _judge(
    captioner: Captioner, memory: Memory, search: SearchResult, options: DecodingOptions
) -> list[list[Hypothesis]]:
    """The best rows of each video by the captioner's own merit; of equal ones the earlier row first."""
    penalty = LengthPenalty.parse(options.length_penalty)
    score = penalty.score(search.captions.total, search.captions.length)
    if score.isnan().any():
        raise ValueError("the captioner gave log-probabilities that are not numbers")
    judgement = captioner.judge(memory, search.captions.tokens, score, penalty.divisor)
    # a captioner's own opinion would bring back rows that the constraints have made impossible
    merit = judgement.merit.masked_fill(score == -torch.inf, -torch.inf)
    ranked = merit.view(memory.size, -1).sort(dim=1, descending=True, stable=True).indices
    ranked = ranked[:, : options.num_captions]
    first = torch.arange(memory.size, device=ranked.device).unsqueeze(1) * (len(score) // memory.size)
    index = (ranked + first).flatten()
    best = search.captions.select(index)
    # after ranking: most rows are dropped, and their attention is never put together
    attention = search.gather_attention(best.steps) if options.attention else None
    hypotheses = _to_hypotheses(best, score[index].tolist(), attention)
    hypotheses = _add_judgement(hypotheses, judgement, index)
    each = ranked.shape[1]
    return [
        [h for h in hypotheses[v * each : (v + 1) * each] if h.score > -torch.inf] for v in range(memory.size)
    ]


def _add_judgement(hypotheses: list[Hypothesis], judgement: Judgement, index: Tensor) -> list[Hypothesis]:
    merits = judgement.merit[index].tolist()
    hypotheses = [replace(each, merit=merit) for each, merit in zip(hypotheses, merits, strict=True)]
    if judgement.confidence is None:
        return hypotheses
    shares = judgement.confidence[index].tolist()
    return [replace(each, confidence=share) for each, share in zip(hypotheses, shares, strict=True)]


def _merge(written: list[Hypothesis], read: list[Hypothesis], count: int) -> list[Hypothesis]:
    """The best of both by merit, each text once."""
    texts = {each.tokens for each in written}
    every = [*written, *(replace(each, recalled=True) for each in read if each.tokens not in texts)]
    return sorted(every, key=lambda each: -each.merit)[:count]


def _to_hypotheses(
    best: PartialCaptions, scores: list[float], attention: StepAttention | None
) -> list[Hypothesis]:
    """One hypothesis a row; attention: tensors (R, t, …)."""
    tokens, logprobs = best.tokens.tolist(), best.logprobs.tolist()
    lengths, finished = best.length.long().tolist(), best.finished.tolist()
    hypotheses = []
    for row, (length, ended) in enumerate(zip(lengths, finished, strict=True)):
        words = length - 1 if ended else length
        hypotheses.append(
            Hypothesis(
                tokens=tuple(tokens[row][:words]),
                logprobs=tuple(logprobs[row][:words]),
                end_logprob=logprobs[row][words] if ended else None,
                score=scores[row],
                finished=ended,
                attention=None if attention is None else _attention_of(attention, row, words),
            )
        )
    return hypotheses


def _attention_of(attention: StepAttention, row: int, words: int) -> StepAttention:
    """The first ``words`` steps of one row, tensors (words, …)."""
    return StepAttention(
        temporal=attention.temporal[row, :words],
        spatial=None if attention.spatial is None else attention.spatial[row, :words],
        extras={name: value[row, :words] for name, value in attention.extras.items()},
    )


def _read_captions(captioner: Captioner, memory: Memory, targets: Tensor) -> SearchResult:
    """Gives a captioner captions word by word, and keeps how likely each word is and where it looks.

    targets: (R, L) ids, ended by <eos> and padded by -1; the captions of a video side by side. Returns R
    finished rows with the attention of L steps.
    """
    read = teacher_force(captioner, memory, targets)
    rows = torch.arange(len(targets), device=targets.device)
    captions = PartialCaptions(
        tokens=targets.masked_fill(~read.valid, EOS),
        logprobs=read.log_p,
        steps=rows.unsqueeze(1).expand_as(targets),
        total=read.log_p.sum(1),
        length=read.valid.sum(1).to(read.log_p.dtype),
        finished=torch.ones_like(rows, dtype=torch.bool),
    )
    return SearchResult(captions, read.attentions)
