"""Training a captioner in phases: cross-entropy first, self-critical steps last, a captioner's own between.

A step is a function of the seed and its number (``Batches.at``, one generator a step), so a run that was
killed goes on exactly where its last saved state stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from models.captioner import AnyCaptioner
from training.batches.picture_batches import Batches, TrainingBatch, TrainingItem
from training.batches.pseudo_video import Shots
from training.optimization.last_rewards import LastRewards
from training.optimization.losses import supervised_loss
from training.optimization.run_folder import Learner, TrainingRun, learner_of, refining
from training.optimization.self_critical import SelfCritical
from training.optimization.validation import See, Validation, as_it_is
from training.precision import autocast
from training.recipes.recipe import Recipe, TrainingMoment

REPORT_EVERY = 20
#: In the order in which a run has them; none has all.
PHASES = ("cross_entropy", "first_step", "combined", "frozen_key_frames", "self_critical", "embedding")
#: What the judges of this package's phases measure, and log.
Scores = Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Phase:
    """One stretch of training: data, loss ("total" is descended, the rest is logged), rate by step.

    judge: scores of the averaged weights, of which the one called ``metric`` says whether they are kept.
    keeps_start: the weights it starts from have to be surpassed. rewards: what its loss remembers.
    """

    name: str
    steps: int
    validate_every: int
    batches: Batches
    loss: Callable[[Learner, TrainingBatch, int], dict[str, Tensor]]
    rate: Callable[[int], float]
    judge: Callable[[Any], Scores]
    metric: str = "cider"
    keeps_start: bool = False
    rewards: LastRewards | None = None

    def judged_by(self, metric: str) -> Phase:
        return replace(self, metric=metric)


@dataclass(frozen=True, eq=False)
class Trainer:
    """One captioner, its data, and the folder that remembers how far it got."""

    recipe: Recipe
    batches: Batches
    held_out: Sequence[TrainingItem]
    run: TrainingRun
    save_best: Callable[[Any, float, str], None]
    precision: torch.dtype

    def train(self, captioner: AnyCaptioner) -> None:
        """Cross-entropy for ``recipe.steps``; resumes from the run's folder where there is one."""
        phase = self.phase("cross_entropy", self.recipe.steps, self.cross_entropy, self.on_whole_pictures)
        self.go_through(replace(phase, keeps_start=phase.steps == 0), learner_of(self.recipe, captioner))

    def phase(
        self,
        name: str,
        steps: int,
        loss: Callable[[Learner, TrainingBatch, int], dict[str, Tensor]],
        judge: Callable[[Any], Scores],
    ) -> Phase:
        """One of ``steps`` on the trainer's batches, at the recipe's rate."""

        def rate(step: int) -> float:
            return self.recipe.rate(step, steps, self.epoch(step))

        return Phase(name, steps, self.recipe.validate_every, self.batches, loss, rate, judge)

    def epoch(self, step: int) -> float:
        """How many epochs ``step`` steps are: as long as the recipe says, or all videos once."""
        return step / (self.recipe.epoch_steps or self.batches.steps_per_epoch)

    def refine(self, captioner: AnyCaptioner, reward: SelfCritical) -> None:
        """Self-critical steps from the weights ``captioner`` has; kept only where validation gains."""
        recipe = self.recipe
        learner = learner_of(refining(recipe), captioner)

        def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
            generator = generator_of(recipe.seed, step, 2)
            given = recipe.words_given(self.epoch(step))
            network: Any = learner.captioner
            return reward.loss(network, batch, generator, self.precision, given)

        def rate(step: int) -> float:
            done = step / recipe.self_critical_steps
            return recipe.self_critical_rate * recipe.schedule.share(TrainingMoment(done, self.epoch(step)))

        batches = replace(self.batches, captions=recipe.self_critical_captions)
        steps, every = recipe.self_critical_steps, recipe.self_critical_every
        phase = Phase("self_critical", steps, every, batches, loss, rate, self.on_whole_pictures)
        self.go_through(replace(phase, keeps_start=True), learner)

    @property
    def shots(self) -> Shots | None:
        """How the pseudo-videos that are trained on are made; real videos have none."""
        return self.batches.shots

    def on_whole_pictures(self, captioner: AnyCaptioner) -> Scores:
        """CIDEr-D of the held-out items."""
        return {"cider": self.cider(captioner)}

    def cider(self, captioner: AnyCaptioner, shots: Shots | None = None, see: See = as_it_is) -> float:
        """Of the held-out items, whole or as pseudo-videos; see: the memory that is written from."""
        longest = self.recipe.max_length
        validation = Validation(self.held_out, self.batches.vocabulary, longest, shots, see)
        return validation.cider(captioner, self.precision)

    def go_through(self, phase: Phase, learner: Learner) -> None:
        """All steps of a phase that the run has not taken yet."""
        first, best = self._resume(phase, learner)
        if first == 0 and best == -math.inf and phase.keeps_start:
            best = self._checkpoint(phase, 0, learner, best)
        clock = time.monotonic()
        bar = tqdm(total=phase.steps, initial=first, desc=phase.name, unit="step")
        with bar, ThreadPoolExecutor(1) as ahead:
            coming: Future[TrainingBatch] = ahead.submit(phase.batches.at, first)
            for step in range(first, phase.steps):
                batch, coming = coming.result(), ahead.submit(phase.batches.at, step + 1)
                losses = self._step(phase, learner, batch, step)
                bar.update()
                if (step + 1) % REPORT_EVERY == 0:
                    self._report(phase, step, losses, time.monotonic() - clock)
                if (step + 1) % phase.validate_every == 0 or step + 1 == phase.steps:
                    best = self._checkpoint(phase, step + 1, learner, best)
                    bar.set_postfix({phase.metric: f"{best:.1f}"})

    def _step(self, phase: Phase, learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        learner.captioner.train()
        torch.manual_seed(self.recipe.seed * 1_000_003 + step)
        losses = phase.loss(learner, batch, step)
        learner.update(losses["total"], phase.rate(step), self.recipe.clip)
        return losses

    def _resume(self, phase: Phase, learner: Learner) -> tuple[int, float]:
        """(first step to take, best score so far); a phase that the run has left behind takes none.

        What an earlier phase was judged by is no measure for one that is judged by something else.
        """
        state = self.run.load()
        if state is None:
            return 0, -math.inf
        if PHASES.index(state["phase"]) > PHASES.index(phase.name):
            return phase.steps, float(state["best"])
        if state["phase"] != phase.name:
            return 0, float(state["best"]) if state.get("metric", "cider") == phase.metric else -math.inf
        learner.restore(state)
        if phase.rewards is not None:
            phase.rewards.values.copy_(state["rewards"])
        return int(state["step"]), float(state["best"])

    def cross_entropy(
        self, learner: Learner, batch: TrainingBatch, step: int, see: See | None = None
    ) -> dict[str, Tensor]:
        """The supervised loss. see: the memory that is written from, by default the captioner's choice."""
        captioner: Any = learner.captioner
        seed = self.recipe.seed
        with self.autocast():
            memory = captioner.encode_batches(batch.of(captioner))
            if see is None:
                memory = captioner.memory_to_learn_from(memory, generator_of(seed, step, 3))
            else:
                memory = see(memory)
            forcing = self.recipe.teacher_forcing(self.epoch(step))
            generator = generator_of(seed, step, 1)
            return supervised_loss(captioner, memory, batch, self.recipe, forcing, generator)

    def autocast(self) -> torch.autocast:
        """Half precision where the processor has it."""
        return autocast(self.precision)

    def _report(self, phase: Phase, step: int, losses: dict[str, Tensor], seconds: float) -> None:
        values = {name: float(value.detach()) for name, value in losses.items() if name != "total"}
        row = {"phase": phase.name, "step": step + 1, "learning_rate": phase.rate(step), "seconds": seconds}
        self.run.log(row | values)

    def _checkpoint(self, phase: Phase, step: int, learner: Learner, best: float) -> float:
        """Score the averaged weights after ``step`` steps, keep them if they are the best, save the state."""
        averaged: Any = learner.average.module
        scores = phase.judge(averaged)
        score = scores[phase.metric]
        self.run.log({"phase": phase.name, "step": step, **scores})
        if score >= best:  # of equals the last: what is trained may not show in what is judged
            self.save_best(averaged, score, f"{phase.name} step {step}")
        best = max(score, best)
        remembered = {} if phase.rewards is None else {"rewards": phase.rewards.values}
        place = {"phase": phase.name, "step": step, "best": best, "metric": phase.metric}
        self.run.save({**place, **learner.state(), **remembered})
        return best


def generator_of(seed: int, step: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 16 + purpose) * 10_000_019 + step)
