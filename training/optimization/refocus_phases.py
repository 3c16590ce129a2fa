"""Trains refocus in its phases (3.4, 4.2): step 1 alone, both steps with eq. 22, again with key frames
frozen.

Each phase goes on from the best weights of the one before, where the paper goes on from the last. In the last
phase the key frames of those weights stay, and the captioner is trained further by cross-entropy on both
steps; the paper says "trained again" and not from where.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from models.captioner import AnyCaptioner
from training.batches.picture_batches import TrainingBatch
from training.optimization.last_rewards import LastRewards
from training.optimization.losses import scheduled_words
from training.optimization.run_folder import Learner, learner_of
from training.optimization.self_critical import SelfCritical
from training.optimization.trainer import Phase, Scores, Trainer, generator_of

#: From a phase's name to the best weights when it had ended.
BestAfter = Callable[[str], AnyCaptioner]


def train_refocus(trainer: Trainer, on_shots: Trainer, best_after: BestAfter) -> str:
    """What the recipe has of the three phases, after cross-entropy on both steps (which may have no steps).

    on_shots: the same trainer, for the phases that are judged by videos of several shots. Returns the name
    of the last phase.
    """
    recipe, last = trainer.recipe, "cross_entropy"
    refocusing = Refocusing(trainer, on_shots)
    for name, steps, go_through in (
        ("first_step", recipe.first_step_steps, refocusing.first_step),
        ("combined", recipe.combined_steps, refocusing.combined),
        ("frozen_key_frames", recipe.frozen_steps, refocusing.frozen_key_frames),
    ):
        if steps:
            go_through(best_after(last))
            last = name
    return last


@dataclass(frozen=True, eq=False)
class Refocusing:
    """The three phases."""

    trainer: Trainer
    on_shots: Trainer

    def first_step(self, captioner: AnyCaptioner) -> None:
        """Cross-entropy of the caption that the default key frame gives (eq. 17)."""
        trainer = self.trainer

        def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
            return trainer.cross_entropy(learner, batch, step, lambda memory: memory.first_step())

        def judge(model: Any) -> Scores:
            return {"cider": trainer.cider(model, see=lambda memory: memory.first_step())}

        trainer.go_through(
            trainer.phase("first_step", trainer.recipe.first_step_steps, loss, judge),
            learner_of(trainer.recipe, captioner),
        )

    def combined(self, captioner: AnyCaptioner) -> None:
        """Eq. 22, with the reward that each video earned in the last epoch."""
        trainer = self.trainer
        rewards = LastRewards([item.id for item in trainer.batches.items])

        def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
            model: Any = learner.captioner
            ratio = trainer.recipe.teacher_forcing(trainer.epoch(step))
            words = scheduled_words(ratio, generator_of(trainer.recipe.seed, step, 4))
            with trainer.autocast():
                memory = model.encode_batches(batch.of(model))
                found = model.combined_loss(memory, batch.targets, rewards.of(batch.ids), words)
            rewards.remember(batch.ids, found.reward)
            parts = {"loss": found.step_2, "step_1": found.step_1, "refocusing": found.refocusing}
            return {"total": found.total, **parts, "reward": found.reward.mean()}

        phase = trainer.phase("combined", trainer.recipe.combined_steps, loss, self._on_shots)
        self._go_through(replace(phase, rewards=rewards), captioner)

    def frozen_key_frames(self, captioner: AnyCaptioner) -> None:
        """Cross-entropy on both steps (eqs. 17 and 18), the key frames being those of ``captioner``."""
        trainer = self.trainer
        phase = trainer.phase(
            "frozen_key_frames", trainer.recipe.frozen_steps, trainer.cross_entropy, self._on_shots
        )
        self._go_through(phase, captioner.at_start_of("frozen_key_frames"))

    def _go_through(self, phase: Phase, captioner: AnyCaptioner) -> None:
        """The start is judged first, so that only a gain on videos of several shots is kept."""
        phase = replace(phase, metric="shots_cider", keeps_start=True)
        self.on_shots.go_through(phase, learner_of(self.trainer.recipe, captioner))

    def _on_shots(self, model: Any) -> Scores:
        """CIDEr-D of whole pictures, and of pseudo-videos where such are trained on."""
        whole, shots = self.trainer.cider(model), self.trainer.shots
        return {"cider": whole, "shots_cider": whole if shots is None else self.trainer.cider(model, shots)}


# What comes after cross-entropy: refocus's own phases, and then self-critical steps.
#
# Each goes on from the best weights of the one before.


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
