"""Lets a captioner write captions that are known, a word a step, and scores all their words at once.

What no state changes is computed for a whole batch of captions: the vectors of the words before the steps,
and after them the vocabulary's probabilities, of the words that count alone. Which rows these are says a plan
(``training/batches/forcing_plan.py``), so that nothing here waits for a GPU.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import Captioner
from models.memory import Memory, StepAttention
from models.vocabulary import UNK
from training.batches.forcing_plan import ForcedStep, ForcingPlan


@dataclass(frozen=True, eq=False)
class ForcedWords:
    """The N words of a batch's captions that are scored."""

    log_probs: Tensor  #: (N, V) with gradient
    captions: Tensor  #: (N,), the caption of each word
    places: Tensor  #: (N,), each word's place in its caption
    weights: Tensor  #: (N,), 1 for a word that counts, 0 for padding
    steps: Sequence[ForcedStep]
    attentions: Sequence[StepAttention | None]  #: of each step, for the rows that it took

    def take(self, per_word: Tensor) -> Tensor:
        """Takes of a value for each caption's words (R, L, …) those of the words that are scored (N, …)."""
        return per_word[self.captions, self.places]

    def looks(self) -> Iterator[tuple[StepAttention, Tensor, Tensor, Tensor]]:
        """Yields each step's attention, and of its rows that are scored places, captions and weights."""
        weights = torch.split(self.weights, [len(step.counted) for step in self.steps])
        for step, attention, of_step in zip(self.steps, self.attentions, weights, strict=True):
            if attention is not None:
                yield attention, step.counted, step.rows[step.counted], of_step


def force_words(
    captioner: Captioner,
    memory: Memory,
    targets: Tensor,
    plan: ForcingPlan,
    generator: torch.Generator | None = None,
) -> ForcedWords:
    """Takes the steps of captions.

    Args:
        captioner: whose steps are taken.
        memory: B encoded videos.
        targets: (R, L) from ``pad_captions``, R = B × K, the K captions of a video side by side.
        plan: of these targets, on the captioner's device.
        generator: draws the captioner's own words from its own distribution (Bengio et al. 2015), under a
            dropout of their own, on the captioner's device.
    """
    steps, words = plan.divide()
    rows = targets.shape[0] // memory.size
    state, first = captioner.start(memory, rows), captioner.first_word(memory, rows)
    fed = torch.cat([first.unsqueeze(1), targets[:, :-1].clamp(min=0)], 1)
    outputs: list[Tensor] = []
    attentions: list[StepAttention | None] = []
    output = first
    for step, embedded in zip(steps, captioner.embed_words(fed).unbind(1), strict=False):
        words_in = embedded[step.rows]
        if len(step.own):
            drawn = draw_words(captioner.score_words(output[step.drawn_from]), generator)
            vectors = captioner.embed_words(drawn).to(words_in.dtype)
            is_fed = step.fed.bool().view(-1, *[1] * (vectors.dim() - 1))
            words_in = words_in.index_copy(0, step.own, torch.where(is_fed, vectors, words_in[step.own]))
        if outputs and len(step.rows) < len(output):
            state = state.select(step.kept)
        output, state, attention = captioner.advance(state, words_in, memory)
        outputs.append(output[step.counted])
        attentions.append(attention)
    return ForcedWords(captioner.score_words(torch.cat(outputs)), *words, steps, attentions)


@torch.no_grad()
def draw_words(log_probs: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draws (N,) words by log-probabilities (N, V); never the unknown one.

    The largest of log-probabilities with Gumbel's noise is a draw of theirs. ``multinomial`` draws so too,
    and first asks a GPU whether they are valid.
    """
    noise = torch.empty_like(log_probs).exponential_(generator=generator).log_()
    noise[:, UNK] = torch.inf
    return (log_probs - noise).argmax(1)
