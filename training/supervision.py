"""The supervised loss of a captioner on a batch of captions."""

from __future__ import annotations

import torch
from torch import Tensor

from models.captioner import AnyCaptioner, Memory
from training.dataset import TrainingBatch
from training.losses import caption_loss
from training.recipes import Recipe


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
