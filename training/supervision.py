"""What a captioner learns from captions: which of its memories it writes from, and by which loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from models.captioner import Captioner, Memory
from models.dual_afr import DualAFR, DualAFRMemory
from models.refocus import RefocusMemory
from training.dataset import TrainingBatch
from training.losses import caption_loss
from training.recipes import Recipe


def encoded(captioner: Any, batch: TrainingBatch) -> Memory:
    """The batch's videos."""
    memory: Memory = captioner.encode_batches(batch.of(captioner))
    return memory


def memory_to_learn_from(memory: Memory, generator: torch.Generator) -> Memory:
    """The captioner's memory; for refocus each video's first or second encoding, with even odds.

    So one decoding teaches both captions (eqs. 17 and 18), where their sum takes two.
    """
    if isinstance(memory, RefocusMemory):
        first = torch.rand(memory.size, generator=generator) < 0.5
        return memory.either_step(first.to(memory.o.device))
    return memory


def supervised_loss(
    captioner: Captioner[Any, Any],
    memory: Memory,
    batch: TrainingBatch,
    recipe: Recipe,
    forcing: float,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """ "total" is descended; "loss" is nats a word. forcing: the share of true words that are fed.

    Hard attention (dualAFR) is trained by its multi-sample bound, whose p(Y|m) is that of the caption
    itself: smoothing, a teacher's words or sampled words in Y's place would bound something else, so the
    bound has none of them.
    """
    if (
        isinstance(captioner, DualAFR)
        and isinstance(memory, DualAFRMemory)
        and captioner.config.kind == "hard"
    ):
        hard = captioner.multi_sample_loss(memory, batch.targets)
        return {"total": hard.surrogate, "loss": hard.bound}
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
