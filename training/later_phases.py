"""What comes after cross-entropy: refocus's own phases, and then self-critical steps.

Each goes on from the best weights of the one before.
"""

from __future__ import annotations

from models.captioner import AnyCaptioner
from training.loop import Trainer
from training.refocusing import BestAfter, train_refocus
from training.self_critical import SelfCritical


def train_later_phases(
    captioner: AnyCaptioner, trainer: Trainer, on_shots: Trainer, best_after: BestAfter
) -> None:
    """What the recipe of ``trainer`` has of them; it has been through cross-entropy with ``captioner``.

    on_shots: the trainer of refocus's phases that are judged by videos of several shots. best_after: from a
    phase's name to its best weights. Rewards are computed against the captions of the videos that are
    trained on. Raises NoReward where METEOR is paid for and no Java runs.
    """
    last = "cross_entropy"
    if captioner.training_phases:
        last = train_refocus(trainer, on_shots, best_after)
    if trainer.recipe.self_critical_steps:
        batches = trainer.batches
        reward = SelfCritical.of(trainer.recipe, batches.items, batches.vocabulary.words)
        trainer.refine(best_after(last), reward)
