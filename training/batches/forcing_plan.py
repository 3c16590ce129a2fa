"""Plans how known captions are taken a word a step: which rows have a word, and which words are its own.

A plan is made on the CPU, by the thread that makes the batch, and goes to the device in one copy: a step that
planned on a GPU would wait for all that it was asked before.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ForcedStep:
    """One step of a batch of captions, by indices on the captioner's device."""

    rows: Tensor  #: (R',) captions that are taken, each video's longest first
    kept: Tensor  #: (R',) their places among the rows of the step before
    counted: Tensor  #: places of the rows whose words are scored
    own: Tensor  #: places of the rows for which a word of the captioner's own is drawn
    drawn_from: Tensor  #: the same rows' places among those of the step before
    fed: Tensor  #: 1 for each of these that is fed its word, 0 for those that are fed the true one


#: Tensors of a step.
MEMBERS = 6


@dataclass(frozen=True, eq=False)
class ForcingPlan:
    """All steps of a batch of captions, in one tensor."""

    indices: Tensor  #: (n,), the tensors of all steps one after another, then those of the words
    sizes: Sequence[int]  #: of each of those

    def divide(self) -> tuple[list[ForcedStep], tuple[Tensor, Tensor, Tensor]]:
        """Returns the steps, and of the N words the captions, the places there, and 1, or 0 for padding."""
        *parts, captions, places, weights = torch.split(self.indices, list(self.sizes))
        steps = [ForcedStep(*parts[first : first + MEMBERS]) for first in range(0, len(parts), MEMBERS)]
        return steps, (captions, places, weights.float())


def plan_forcing(
    targets: Tensor,
    videos: int,
    true_share: float = 1.0,
    generator: torch.Generator | None = None,
    *,
    fixed: bool = False,
) -> ForcingPlan:
    """Plans the steps of captions.

    Each video's captions are taken longest first, so that the rows that have ended can be dropped: a fifth of
    the steps of a padded batch.

    Args:
        targets: (R, L) from ``pad_captions`` on the CPU, R = B × K, the K captions of a video side by side.
        videos: B.
        true_share: the probability that the true word is fed, and not one of the captioner's own.
        generator: draws which are, on the CPU.
        fixed: whether all rows are taken at every step, so that all plans of one R and L have equal shapes.
    """
    there_is = targets >= 0
    is_own = _draw_own_words(targets, true_share, generator)
    lengths = there_is.sum(1).view(videos, -1)
    order = lengths.argsort(dim=1, descending=True, stable=True)
    order += torch.arange(videos).unsqueeze(1) * lengths.shape[1]
    parts: list[Tensor] = []
    words: list[Tensor] = []
    before = lengths.shape[1]
    for place in range(targets.shape[1]):
        active = lengths.shape[1] if fixed else int((lengths > place).sum(1).max())
        if active == 0:
            break
        rows = order[:, :active].flatten()
        kept = (torch.arange(videos).unsqueeze(1) * before + torch.arange(active)).flatten()
        counts = there_is[rows, place]
        fed = counts & is_own[rows, place - 1] if place else torch.zeros_like(counts)
        counted = (counts | fixed).nonzero().flatten()
        drawn = (fed | (fixed and place > 0 and true_share < 1)).nonzero().flatten()
        parts += [rows, kept, counted, drawn, kept[drawn], fed[drawn].long()]
        words.append(torch.stack([rows[counted], torch.full_like(counted, place), counts[counted].long()]))
        before = active
    parts += torch.cat(words, 1).unbind()
    return ForcingPlan(torch.cat(parts), tuple(len(part) for part in parts))


def _draw_own_words(targets: Tensor, true_share: float, generator: torch.Generator | None) -> Tensor:
    """Returns bool (R, L): after which words the captioner's own is fed, in the true one's place."""
    if true_share >= 1:
        return torch.zeros_like(targets, dtype=torch.bool)
    return torch.rand(targets.shape, generator=generator) >= true_share
