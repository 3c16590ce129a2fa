"""Losses of captioners: words, attention, teachers' probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from models.captioner import AnyCaptioner, Memory
from models.likelihood import NextWord
from models.vocabulary import UNK
from training.batches.picture_batches import TrainingBatch
from training.batches.teacher_targets import TeacherTargets
from training.recipes.recipe import Recipe


@dataclass(frozen=True, eq=False)
class CaptionLoss:
    """cross_entropy: nats a word; auxiliary: the captioner's own loss; shot: nats, -log of the temporal
    attention on the captioned shot. All are means over words."""

    cross_entropy: Tensor
    auxiliary: Tensor
    shot: Tensor


def caption_loss(
    captioner: AnyCaptioner,
    memory: Any,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
    teacher_forcing: float = 1.0,
    generator: torch.Generator | None = None,
    true_steps: Tensor | None = None,
    soft: TeacherTargets | None = None,
    soft_weight: float = 0.0,
) -> CaptionLoss:
    """targets: (R, L) from ``pad_captions``, R = B × K, the K captions of a video side by side.
    true_steps: bool (B, T), the steps of each video that its captions are of. soft: what a teacher would have
    written in each place; it takes ``soft_weight`` of the cross-entropy.

    With probability 1 - ``teacher_forcing`` an input word is drawn from the model's own distribution
    (Bengio et al. 2015) instead of being the true one. Each video's captions are taken longest first, so
    that the rows that have ended can be dropped: a fifth of the steps of a padded batch.
    """
    words = (targets >= 0).sum()
    order = _longest_first(targets, memory.size)
    targets, soft = targets[order], None if soft is None else soft.select(order)
    captions = targets.shape[0] // memory.size
    state = captioner.start(memory, captions)
    word = captioner.first_word(memory, captions)
    total = auxiliary = shot = torch.zeros((), device=targets.device)
    for i in range(targets.shape[1]):
        active = int((targets[:, i].view(memory.size, -1) >= 0).sum(1).max())
        if active < captions:
            index = _first_rows(memory.size, captions, active)
            state, word, targets, captions = state.select(index), word[index], targets[index], active
            soft = None if soft is None else soft.select(index)
        log_probs, state, attention = captioner.step(state, word, memory)
        target, valid = targets[:, i].clamp(min=0), targets[:, i] >= 0
        hard = _smoothed(log_probs, target, smoothing)
        if soft is not None:
            hard = (1 - soft_weight) * hard + soft_weight * soft.loss(log_probs, i)
        total = total + (hard * valid).sum()
        if attention is not None and attention.loss is not None:
            auxiliary = auxiliary + (attention.loss * valid).sum()
        if attention is not None and true_steps is not None:
            shot = shot + (_missed(attention.temporal, true_steps) * valid).sum()
        word = _next_word(log_probs, target, teacher_forcing, generator)
    return CaptionLoss(total / words, auxiliary / words, shot / words)


def _longest_first(targets: Tensor, videos: int) -> Tensor:
    """(R,) indices that put each video's captions longest first."""
    lengths = (targets >= 0).sum(1).view(videos, -1)
    order = lengths.argsort(dim=1, descending=True, stable=True)
    return (order + torch.arange(videos).unsqueeze(1) * lengths.shape[1]).flatten()


def _first_rows(videos: int, captions: int, kept: int) -> Tensor:
    """Indices of the first ``kept`` of each video's ``captions`` rows."""
    return (torch.arange(videos).unsqueeze(1) * captions + torch.arange(kept)).flatten()


def _smoothed(log_probs: Tensor, target: Tensor, smoothing: float) -> Tensor:
    loss = -log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_probs.mean(1)
    return loss


def _missed(temporal: Tensor, true_steps: Tensor) -> Tensor:
    """(R,) -log of the attention (R, T) that the true steps (B, T) of a row's video get."""
    rows = true_steps.repeat_interleave(temporal.shape[0] // true_steps.shape[0], 0)
    return -(temporal.float() * rows).sum(1).clamp(min=1e-6).log()


def scheduled_words(ratio: float, generator: torch.Generator) -> NextWord:
    """From log-probabilities (R, V) and true words (R,) to the words that are fed, by scheduled sampling."""
    return lambda log_probs, target: _next_word(log_probs, target, ratio, generator)


def _next_word(log_probs: Tensor, target: Tensor, ratio: float, generator: torch.Generator | None) -> Tensor:
    if ratio >= 1:
        return target
    own = torch.rand(target.shape, generator=generator) >= ratio
    chosen = own.nonzero().squeeze(1)
    if not len(chosen):
        return target
    probabilities = log_probs.detach()[chosen].exp()
    probabilities[:, UNK] = 0
    word = target.clone()
    word[chosen] = torch.multinomial(probabilities, 1, generator=generator).squeeze(1)
    return word


# The supervised loss of a captioner on a batch of captions.


def supervised_loss(
    captioner: AnyCaptioner,
    memory: Memory,
    batch: TrainingBatch,
    recipe: Recipe,
    forcing: float,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """ "total" is descended; "loss" is nats a word. forcing: the share of true words that are fed.

    A captioner's own loss takes the place of cross-entropy.
    """
    own = captioner.own_loss(memory, batch.targets)
    if own is not None:
        return {"total": own.total, "loss": own.per_word}
    loss = caption_loss(
        captioner,
        memory,
        batch.targets,
        smoothing=recipe.smoothing,
        teacher_forcing=forcing,
        generator=generator,
        true_steps=batch.true_steps,
        soft=batch.soft,
        soft_weight=recipe.soft_weight,
    )
    total = loss.cross_entropy + recipe.ranking_weight * loss.auxiliary + recipe.shot_weight * loss.shot
    return {"total": total, "loss": loss.cross_entropy, "auxiliary": loss.auxiliary, "shot": loss.shot}
