"""Trains refocus in its phases (3.4, 4.2): step 1 alone, both steps with eq. 22, again with key frames
frozen.

Each phase goes on from the best weights of the one before, where the paper goes on from the last. In the last
phase the key frames of those weights stay, and the captioner is trained further by cross-entropy on both
steps; the paper says "trained again" and not from where.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TypeAlias, TypeGuard

import torch
from torch import Tensor

from models.captioner import AnyCaptioner
from models.captioners.refocus.network import Refocus, RefocusMemory
from training.batches.loading import find_device
from training.batches.training_batch import CaptionedItem, TrainingBatch
from training.optimization.learner import build_learner
from training.optimization.losses import make_scheduled_sampling
from training.optimization.processes import ALONE, Processes, share_mean
from training.optimization.self_critical import SelfCritical
from training.optimization.trainer import Losses, Phase, Scores, Trainer

#: From a phase's name to the best weights when it had ended.
BestAfter: TypeAlias = Callable[[str], AnyCaptioner]


def train_later_phases(captioner: AnyCaptioner, trainer: Trainer, best_after: BestAfter) -> None:
    """Takes what the trainer's recipe has behind cross-entropy: refocus's phases, then self-critical steps.

    Each goes on from the best weights of the one before. Rewards are computed against the captions of the
    videos that are trained on.

    Args:
        captioner: the one that went through cross-entropy.
        trainer: of its recipe.
        best_after: loads a phase's best weights by the phase's name.

    Raises:
        NoReward: the recipe pays for METEOR and no Java runs.
    """
    last = train_refocus(trainer, best_after) if has_refocus_phases(captioner) else "cross_entropy"
    if trainer.recipe.self_critical_steps:
        batches = trainer.batches
        reward = SelfCritical.for_items(trainer.recipe, batches.items, batches.vocabulary.words)
        trainer.refine(best_after(last), reward)


def has_refocus_phases(captioner: AnyCaptioner) -> TypeGuard[Refocus]:
    """Tells whether a captioner has phases of its own; those that there are are refocus's."""
    return bool(captioner.training_phases)


def train_refocus(trainer: Trainer, best_after: BestAfter) -> str:
    """Takes what the recipe has of the three phases, after cross-entropy on both steps.

    Returns the name of the last phase.
    """
    recipe, last = trainer.recipe, "cross_entropy"
    phases = RefocusPhases(trainer)
    for name, steps, go_through in (
        ("first_step", recipe.first_step_steps, phases.train_first_step),
        ("combined", recipe.combined_steps, phases.train_combined),
        ("frozen_key_frames", recipe.frozen_steps, phases.train_with_frozen_key_frames),
    ):
        if steps:
            captioner = best_after(last)
            if not has_refocus_phases(captioner):
                raise TypeError(f"{captioner.name} has no phase {name}; only refocus has")
            go_through(captioner)
            last = name
    return last


@dataclass(frozen=True, eq=False)
class RefocusPhases:
    """The three phases, each a method that trains a captioner through it."""

    trainer: Trainer

    def train_first_step(self, captioner: Refocus) -> None:
        """Descends cross-entropy of the caption that the default key frame gives (eq. 17)."""
        trainer = self.trainer

        def loss(network: Refocus, batch: TrainingBatch, step: int) -> Losses:
            return trainer.cross_entropy(network, batch, step, RefocusMemory.first_step)

        def judge(network: Refocus) -> Scores:
            validation = trainer.validation
            return {"cider": validation.cider(network, trainer.precision, RefocusMemory.first_step)}

        phase = trainer.make_phase("first_step", trainer.recipe.first_step_steps, loss, judge)
        trainer.go_through(phase, build_learner(trainer.recipe, captioner, trainer.precision))

    def train_combined(self, captioner: Refocus) -> None:
        """Descends eq. 22, with the reward that each caption earned when it was last trained on."""
        trainer = self.trainer
        rewards = LastRewards(trainer.batches.items, trainer.processes)

        def loss(network: Refocus, batch: TrainingBatch, step: int) -> Losses:
            ratio = trainer.recipe.teacher_forcing(trainer.epoch(step))
            device = find_device(network)
            words = make_scheduled_sampling(ratio, trainer.make_generator(step, 4, device))
            with trainer.autocast(network):
                memory = network.encode_batches(batch.inputs_of(network))
                last = rewards.get(batch).to(device)
                found = network.combined_loss(memory, batch.targets, last, words)
            rewards.remember(batch, found.reward)
            parts = {"loss": found.step_2, "step_1": found.step_1, "refocusing": found.refocusing}
            total = share_mean(found.total, (batch.targets >= 0).sum())
            return {"total": total, **parts, "reward": found.reward.mean()}

        steps = trainer.recipe.combined_steps
        phase = trainer.make_phase("combined", steps, loss, trainer.judge_on_shots)
        self._go_through(replace(phase, remembered={"rewards": rewards.values}), captioner)

    def train_with_frozen_key_frames(self, captioner: Refocus) -> None:
        """Descends cross-entropy on both steps (eqs. 17 and 18), the key frames being the captioner's."""
        trainer, name = self.trainer, "frozen_key_frames"
        steps, judge = trainer.recipe.frozen_steps, trainer.judge_on_shots
        phase: Phase[Refocus] = trainer.make_phase(name, steps, trainer.cross_entropy, judge)
        self._go_through(phase, captioner.at_start_of(name))

    def _go_through(self, phase: Phase[Refocus], captioner: Refocus) -> None:
        """Judges the start first, so that only a gain on videos of several shots is kept."""
        phase = replace(phase, metric="shots_cider", keeps_start=True)
        trainer = self.trainer
        trainer.go_through(phase, build_learner(trainer.recipe, captioner, trainer.precision))


class LastRewards:
    """Keeps the reward that each caption of each training video earned when it was last trained on (eq. 20).

    One of twenty captions is drawn of a video at a time, and how hard it is to write differs more between
    captions than between epochs: so a reward is compared with the same caption's. ``values`` (captions,) are
    NaN for one that was not drawn yet; a run's state holds them. An epoch shows as many captions as there
    are, so that what is found is R_{e-1} where the draws were even, and an older reward, or none, elsewhere.
    All processes know all rewards: the next time another may have the video.
    """

    def __init__(self, items: Sequence[CaptionedItem], processes: Processes = ALONE) -> None:
        self._processes = processes
        firsts = accumulate((len(item.captions) for item in items), initial=0)
        self._first = {item.id: first for item, first in zip(items, firsts, strict=False)}
        self.values = torch.full((sum(len(item.captions) for item in items),), torch.nan)

    def get(self, batch: TrainingBatch) -> Tensor:
        """Returns (R,) rewards of the batch's captions."""
        return self.values[self._places(batch)]

    def remember(self, batch: TrainingBatch, rewards: Tensor) -> None:
        """Keeps rewards (R,) of the batch's captions."""
        for places, values in self._processes.gather((self._places(batch), rewards.detach().float().cpu())):
            self.values[places] = values

    def _places(self, batch: TrainingBatch) -> Tensor:
        each = len(batch.places) // len(batch.ids)
        owners = [name for name in batch.ids for _ in range(each)]
        return torch.tensor([self._first[name] + i for name, i in zip(owners, batch.places, strict=True)])
