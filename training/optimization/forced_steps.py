"""Lets a captioner write captions that are known, a word a step, and scores all their words at once.

What no state changes is computed for a whole batch of captions: the vectors of the words before the steps,
and after them the vocabulary's probabilities, of the words that count alone. Which rows these are is planned
on the CPU, so that a GPU is asked once a batch and not at every word.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import AnyCaptioner
from models.memory import Memory, StepAttention
from models.vocabulary import UNK


@dataclass(frozen=True, eq=False)
class ForcedStep:
    """One step of a batch of captions, by indices on the captioner's device."""

    rows: Tensor  #: (R',) captions that have not all ended, each video's longest first
    kept: Tensor  #: (R',) their places among the rows of the step before
    counted: Tensor  #: places of the rows that have a word here
    own: Tensor  #: places of the rows that are fed a word of the captioner's own
    drawn_from: Tensor  #: the same rows' places among those of the step before


@dataclass(frozen=True, eq=False)
class ForcedWords:
    """The N words of a batch's captions that count."""

    log_probs: Tensor  #: (N, V) with gradient
    captions: Tensor  #: (N,), the caption of each word
    places: Tensor  #: (N,), each word's place in its caption
    steps: Sequence[ForcedStep]
    attentions: Sequence[StepAttention | None]  #: of each step, for the rows that it took

    def take(self, per_word: Tensor) -> Tensor:
        """Takes of a value for each caption's words (R, L, …) those of the words that count (N, …)."""
        return per_word[self.captions, self.places]

    def looks(self) -> Iterator[tuple[StepAttention, Tensor, Tensor]]:
        """Yields each step's attention, the places of its rows that count, and whose captions they are."""
        for step, attention in zip(self.steps, self.attentions, strict=True):
            if attention is not None:
                yield attention, step.counted, step.rows[step.counted]


def force_words(
    captioner: AnyCaptioner,
    memory: Memory,
    targets: Tensor,
    teacher_forcing: float = 1.0,
    generator: torch.Generator | None = None,
) -> ForcedWords:
    """Takes the steps of captions.

    Each video's captions are taken longest first, so that the rows that have ended can be dropped: a fifth of
    the steps of a padded batch.

    Args:
        captioner: whose steps are taken.
        memory: B encoded videos.
        targets: (R, L) from ``pad_captions``, R = B × K, the K captions of a video side by side.
        teacher_forcing: the probability that the true word is fed; else one that is drawn from the model's
            own distribution (Bengio et al. 2015), under a dropout of its own.
        generator: draws those words, on the captioner's device.
    """
    draws = _choose_own_words(targets, teacher_forcing, generator)
    steps = _plan_steps(targets.cpu(), memory.size, draws, targets.device)
    rows = targets.shape[0] // memory.size
    state, first = captioner.start(memory, rows), captioner.first_word(memory, rows)
    fed = torch.cat([first.unsqueeze(1), targets[:, :-1].clamp(min=0)], 1)
    outputs: list[Tensor] = []
    attentions: list[StepAttention | None] = []
    output = first
    for step, embedded in zip(steps, captioner.embed_words(fed).unbind(1), strict=True):
        words_in = embedded[step.rows]
        if len(step.own):
            words = _draw_words(captioner, output[step.drawn_from], generator)
            words_in = words_in.index_copy(0, step.own, captioner.embed_words(words).to(words_in.dtype))
        if outputs and len(step.rows) < len(output):
            state = state.select(step.kept)
        output, state, attention = captioner.advance(state, words_in, memory)
        outputs.append(output[step.counted])
        attentions.append(attention)
    captions = torch.cat([step.rows[step.counted] for step in steps])
    counts = torch.tensor([len(step.counted) for step in steps])
    places = torch.arange(len(steps)).repeat_interleave(counts).to(targets.device)
    return ForcedWords(captioner.score_words(torch.cat(outputs)), captions, places, steps, attentions)


@torch.no_grad()
def _draw_words(captioner: AnyCaptioner, output: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draws (N,) words of the captioner's own; never the unknown one."""
    probabilities = captioner.score_words(output).exp()
    probabilities[:, UNK] = 0
    return torch.multinomial(probabilities, 1, generator=generator).squeeze(1)


def _choose_own_words(
    targets: Tensor, teacher_forcing: float, generator: torch.Generator | None
) -> Tensor | None:
    """Returns bool (R, L) on the CPU: which words are fed as the captioner's own; None where none is."""
    if teacher_forcing >= 1:
        return None
    return (torch.rand(targets.shape, generator=generator, device=targets.device) >= teacher_forcing).cpu()


def _plan_steps(targets: Tensor, videos: int, own: Tensor | None, device: torch.device) -> list[ForcedStep]:
    """Plans all steps of targets (R, L), which lie on the CPU, and brings the plan to the device at once."""
    there_is = targets >= 0
    lengths = there_is.sum(1).view(videos, -1)
    order = lengths.argsort(dim=1, descending=True, stable=True)
    order += torch.arange(videos).unsqueeze(1) * lengths.shape[1]
    parts: list[Tensor] = []
    before = lengths.shape[1]
    for place in range(targets.shape[1]):
        active = int((lengths > place).sum(1).max())
        rows = order[:, :active].flatten()
        kept = (torch.arange(videos).unsqueeze(1) * before + torch.arange(active)).flatten()
        fed = torch.zeros_like(rows, dtype=torch.bool)
        if own is not None and place:
            fed = own[rows, place - 1] & there_is[rows, place]
        counted, drawn = there_is[rows, place].nonzero().flatten(), fed.nonzero().flatten()
        parts += [rows, kept, counted, drawn, kept[drawn]]
        before = active
    moved = torch.split(torch.cat(parts).to(device), [len(part) for part in parts])
    return [ForcedStep(*moved[first : first + 5]) for first in range(0, len(moved), 5)]
