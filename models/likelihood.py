"""Computes how likely given captions are, word by word: what losses over whole captions are made of."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import Captioner
from models.memory import Memory, State, StepAttention
from models.training_phase import NextWord


@dataclass(frozen=True, eq=False)
class CaptionLikelihoods:
    """Holds the log-probability of every word of R captions."""

    log_p: Tensor  #: (R, L) natural logarithms, 0 where ``valid`` is False
    valid: Tensor  #: bool (R, L), False where a caption is padded
    attentions: list[StepAttention | None]  #: one a step


def teacher_force(
    captioner: Captioner, memory: Memory, targets: Tensor, next_word: NextWord | None = None
) -> CaptionLikelihoods:
    """Gives a captioner the true words one by one, and reads how likely it found each of them.

    Args:
        captioner: Predicts the words.
        memory: B videos, as that captioner encoded them.
        targets: (R, L) word ids, ended by <eos> and padded by -1; the captions of a video side by side.
        next_word: Says what the next step is given, for scheduled sampling; by default the true word.

    Returns:
        Log-probabilities with gradient, and the attention of each step.
    """
    valid, log_p, attentions = targets >= 0, [], []
    for i, (log_probs, word, attention) in enumerate(walk(captioner, memory, targets, next_word)):
        log_p.append(log_probs.gather(1, word.unsqueeze(1)).squeeze(1) * valid[:, i])
        attentions.append(attention)
    return CaptionLikelihoods(torch.stack(log_p, 1), valid, attentions)


@torch.no_grad()
def score_chosen_words(captioner: Captioner, memory: Memory, targets: Tensor, chosen: Tensor) -> Tensor:
    """Computes how likely a captioner finds some words of given captions, without scoring the others.

    A step is taken of the captions up to the last one that has a word in question there or later: it costs
    least where captions whose last such word comes late stand before the others.

    Args:
        captioner: Predicts the words, and is given the true ones.
        memory: B videos, as that captioner encoded them.
        targets: (B, L) word ids, a caption a video.
        chosen: bool (B, L), the words in question.

    Returns:
        (B, L) natural logarithms, 0 where ``chosen`` is False.
    """
    state, first = captioner.start(memory, 1), captioner.first_word(memory, 1)
    words = captioner.embed_words(torch.cat([first.unsqueeze(1), targets], 1)[:, :-1])
    outputs = []
    for step, count in enumerate(_count_needed(chosen)):
        if count < memory.size:
            state, memory = state.select(slice(count)), memory.select(slice(count))
        output, state, _ = captioner.advance(state, words[:count, step], memory)
        outputs.append(output[chosen[:count, step]])
    scores = torch.zeros(targets.shape, device=targets.device)
    if outputs:
        log_probs = captioner.score_words(torch.cat(outputs))
        scores.T[chosen.T] = log_probs.gather(1, targets.T[chosen.T].unsqueeze(1)).squeeze(1)
    return scores


def _count_needed(chosen: Tensor) -> list[int]:
    """Counts for each step up to the last word in question the captions that it is taken of."""
    later = chosen.flip(1).cummax(1).values.flip(1)
    places = torch.arange(1, len(chosen) + 1, device=chosen.device).unsqueeze(1)
    counts: list[int] = (later * places).amax(0).tolist()
    return [count for count in counts if count]


def walk(
    captioner: Captioner, memory: Memory, targets: Tensor, next_word: NextWord | None = None
) -> Iterator[tuple[Tensor, Tensor, StepAttention | None]]:
    """Yields log-probabilities (R, V), the true words (R,) and the attention at every place of targets.

    Args:
        captioner: Predicts the words.
        memory: B videos, as that captioner encoded them.
        targets: (R, L) word ids, ended by <eos> and padded by -1; the captions of a video side by side.
        next_word: Says what the next step is given; by default the true word.
    """
    rows = targets.shape[0] // memory.size
    state, word = captioner.start(memory, rows), captioner.first_word(memory, rows)
    true_words = targets.clamp(min=0)
    if next_word is None:
        yield from _forced_steps(captioner, memory, state, torch.cat([word.unsqueeze(1), true_words], 1))
        return
    for true in true_words.unbind(1):
        log_probs, state, attention = captioner.step(state, word, memory)
        yield log_probs, true, attention
        word = next_word(log_probs, true)


def _forced_steps(
    captioner: Captioner, memory: Memory, state: State, words: Tensor
) -> Iterator[tuple[Tensor, Tensor, StepAttention | None]]:
    """Yields as ``walk`` does where all words (R, 1 + L) are known, the first before the caption: what no
    state changes is computed once for all steps, before them or after."""
    outputs, attentions = [], []
    for embedded in captioner.embed_words(words[:, :-1]).unbind(1):
        output, state, attention = captioner.advance(state, embedded, memory)
        outputs.append(output)
        attentions.append(attention)
    scored = torch.split(captioner.score_words(torch.cat(outputs)), len(words))
    yield from zip(scored, words[:, 1:].unbind(1), attentions, strict=True)
