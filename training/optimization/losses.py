"""Computes losses of captioners: of words, of attention, against teachers' probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from models.captioner import AnyCaptioner, Memory
from models.likelihood import NextWord
from models.vocabulary import UNK
from training.batches.training_batch import TeacherTargets, TrainingBatch
from training.recipes.recipe import Recipe


@dataclass(frozen=True, eq=False)
class CaptionLoss:
    """Losses of a batch, each () and a mean over words.

    cross_entropy: nats. auxiliary: what the captioner adds. shot: nats, -log of the temporal attention on
    the captioned shot.
    """

    cross_entropy: Tensor
    auxiliary: Tensor
    shot: Tensor


def caption_loss(
    captioner: AnyCaptioner,
    memory: Memory,
    targets: Tensor,
    *,
    smoothing: float = 0.0,
    teacher_forcing: float = 1.0,
    generator: torch.Generator | None = None,
    true_steps: Tensor | None = None,
    soft: TeacherTargets | None = None,
    soft_weight: float = 0.0,
) -> CaptionLoss:
    """Computes the losses of captions, word by word.

    Each video's captions are taken longest first, so that the rows that have ended can be dropped: a fifth of
    the steps of a padded batch.

    Args:
        captioner: whose ``step`` is taken for every word.
        memory: B encoded videos.
        targets: (R, L) from ``pad_captions``, R = B × K, the K captions of a video side by side.
        smoothing: the share of the target that all words have alike.
        teacher_forcing: the probability that the true word is fed; else one that is drawn from the model's
            own distribution (Bengio et al. 2015).
        generator: draws those words.
        true_steps: bool (B, T), the steps of each video that its captions are of.
        soft: a teacher's words in every place.
        soft_weight: the share of the cross-entropy that these take.
    """
    words = (targets >= 0).sum()
    order = _sort_longest_first(targets, memory.size)
    targets, soft = targets[order], None if soft is None else soft.select(order)
    captions = targets.shape[0] // memory.size
    state = captioner.start(memory, captions)
    word = captioner.first_word(memory, captions)
    total = auxiliary = shot = torch.zeros((), device=targets.device)
    for i in range(targets.shape[1]):
        active = int((targets[:, i].view(memory.size, -1) >= 0).sum(1).max())
        if active < captions:
            index = _index_first_rows(memory.size, captions, active)
            state, word, targets, captions = state.select(index), word[index], targets[index], active
            soft = None if soft is None else soft.select(index)
        log_probs, state, attention = captioner.step(state, word, memory)
        target, valid = targets[:, i].clamp(min=0), targets[:, i] >= 0
        hard = _smooth(log_probs, target, smoothing)
        if soft is not None:
            hard = (1 - soft_weight) * hard + soft_weight * soft.loss(log_probs, i)
        total = total + (hard * valid).sum()
        if attention is not None and attention.loss is not None:
            auxiliary = auxiliary + (attention.loss * valid).sum()
        if attention is not None and true_steps is not None:
            shot = shot + (_measure_missed_attention(attention.temporal, true_steps) * valid).sum()
        word = _draw_next_word(log_probs, target, teacher_forcing, generator)
    return CaptionLoss(total / words, auxiliary / words, shot / words)


def _sort_longest_first(targets: Tensor, videos: int) -> Tensor:
    """Returns (R,) indices that put each video's captions longest first."""
    lengths = (targets >= 0).sum(1).view(videos, -1)
    order = lengths.argsort(dim=1, descending=True, stable=True)
    return (order + torch.arange(videos).unsqueeze(1) * lengths.shape[1]).flatten()


def _index_first_rows(videos: int, captions: int, kept: int) -> Tensor:
    """Returns indices of the first ``kept`` of each video's ``captions`` rows."""
    return (torch.arange(videos).unsqueeze(1) * captions + torch.arange(kept)).flatten()


def _smooth(log_probs: Tensor, target: Tensor, smoothing: float) -> Tensor:
    loss = -log_probs.gather(1, target.unsqueeze(1)).squeeze(1)
    if smoothing:
        loss = (1 - smoothing) * loss - smoothing * log_probs.mean(1)
    return loss


def _measure_missed_attention(temporal: Tensor, true_steps: Tensor) -> Tensor:
    """Computes (R,) -log of the attention (R, T) that the true steps (B, T) of a row's video get."""
    rows = true_steps.repeat_interleave(temporal.shape[0] // true_steps.shape[0], 0)
    return -(temporal.float() * rows).sum(1).clamp(min=1e-6).log()


def make_scheduled_sampling(ratio: float, generator: torch.Generator) -> NextWord:
    """Makes a function from log-probabilities (R, V) and true words (R,) to the words that are fed.

    ratio: the share of true words among them.
    """
    return lambda log_probs, target: _draw_next_word(log_probs, target, ratio, generator)


def _draw_next_word(
    log_probs: Tensor, target: Tensor, ratio: float, generator: torch.Generator | None
) -> Tensor:
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


def supervised_loss(
    captioner: AnyCaptioner,
    memory: Memory,
    batch: TrainingBatch,
    recipe: Recipe,
    forcing: float,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Computes the supervised loss of a batch; a captioner's own loss takes the place of cross-entropy.

    Args:
        captioner: in training mode.
        memory: the batch's B encoded videos.
        batch: has the captions.
        recipe: weights of the losses.
        forcing: the share of true words that are fed.
        generator: draws the others.

    Returns:
        "total", which is descended, "loss", nats a word, and others to be logged, each ().
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
