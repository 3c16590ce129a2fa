"""Takes a captioner through the phases that it lists, and then through self-critical steps.

Each phase continues from the best weights of the one before; papers go on from its last.
"""

from collections.abc import Callable
from typing import TypeAlias

from models.captioner import Captioner
from training.optimization.self_critical import SelfCritical
from training.optimization.trainer import Trainer

#: From a phase's name to the best weights when it had ended.
BestAfter: TypeAlias = Callable[[str], Captioner]


def train_later_phases(captioner: Captioner, trainer: Trainer, best_after: BestAfter) -> None:
    """Takes what the trainer's recipe has after cross-entropy: the captioner's own phases, then rewards.

    Rewards are computed against the captions of the videos that are trained on.

    Args:
        captioner: the one that went through cross-entropy.
        trainer: of its recipe.
        best_after: loads a phase's best weights by the phase's name.

    Raises:
        NoReward: the recipe pays for METEOR and no Java runs.
    """
    last, *later = captioner.phases
    for spec in later:
        if steps := trainer.recipe.phases.get(spec.name, 0):
            start = best_after(last.name)
            trainer.learn(start if spec.prepare is None else spec.prepare(start), spec, steps)
            last = spec
    if trainer.recipe.self_critical_steps:
        batches = trainer.batches
        reward = SelfCritical.for_items(trainer.recipe, batches.items, batches.vocabulary.words)
        trainer.refine(best_after(last.name), reward)
