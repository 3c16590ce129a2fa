"""Takes a captioner through the phases that it lists, and then through self-critical steps.

Each phase continues from the best weights of the one before; papers go on from its last.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from models.captioner import Captioner
from models.training_phase import PhaseSpec
from training.optimization.learner import build_learner
from training.optimization.losses import CaptionValues
from training.optimization.self_critical import SelfCritical
from training.optimization.trainer import Phase, Trainer
from training.optimization.validation import HeldOutScores

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
    first, *later = captioner.phases
    last = train_own_phases(later, trainer, best_after, first.name)
    if trainer.recipe.self_critical_steps:
        batches = trainer.batches
        reward = SelfCritical.for_items(trainer.recipe, batches.items, batches.vocabulary.words)
        trainer.refine(best_after(last), reward)


def train_own_phases(
    phases: Sequence[PhaseSpec], trainer: Trainer, best_after: BestAfter, last: str = "cross_entropy"
) -> str:
    """Takes those of a captioner's phases that the recipe has steps for.

    Args:
        phases: in the order in which they are gone through.
        trainer: of the recipe.
        best_after: loads a phase's best weights by the phase's name.
        last: the phase that has ended.

    Returns:
        The name of the phase that ended last.
    """
    for spec in phases:
        if trainer.recipe.phases.get(spec.name, 0):
            captioner = best_after(last)
            go_through(spec, trainer, captioner if spec.prepare is None else spec.prepare(captioner))
            last = spec.name
    return last


def go_through(spec: PhaseSpec, trainer: Trainer, captioner: Captioner) -> None:
    """Takes a captioner through one phase, for as many steps as the recipe says.

    Args:
        spec: the phase, as the captioner lists it.
        trainer: of the run.
        captioner: whose weights are trained.
    """

    def judge(network: Captioner) -> HeldOutScores:
        return trainer.judge(network, spec)

    values = CaptionValues(trainer.batches.items, trainer.processes)
    steps = trainer.recipe.phases[spec.name]
    phase: Phase[Captioner] = trainer.make_phase(
        spec.name, steps, trainer.make_supervised_loss(spec, values), judge
    )
    remembered = {spec.remembers: values.values} if spec.remembers else {}
    phase = replace(phase, metric=spec.metric, keeps_start=spec.keeps_start, remembered=remembered)
    trainer.go_through(phase, build_learner(trainer.recipe, captioner, trainer.precision))
