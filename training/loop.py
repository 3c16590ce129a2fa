"""Training a captioner: cross-entropy first, self-critical steps after.

A step is a function of the seed and its number (``Batches.at``, one generator a step), so a run that was
killed goes on exactly where its last saved state stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from models.captioner import Captioner
from training.dataset import Batches, Captioned, TrainingBatch
from training.losses import caption_loss, teacher_forcing_ratio
from training.recipes import Recipe
from training.run import Learner, Run
from training.self_critical import SelfCritical
from training.supervision import memory_to_learn_from
from training.validate import Validation

REPORT_EVERY = 20
PHASES = ("cross_entropy", "self_critical")


@dataclass(frozen=True, eq=False)
class Phase:
    """One stretch of training: data, loss ("total" is descended, the rest is logged), rate by step."""

    name: str
    steps: int
    validate_every: int
    batches: Batches
    loss: Callable[[Learner, TrainingBatch, int], dict[str, Tensor]]
    rate: Callable[[int], float]


@dataclass(frozen=True, eq=False)
class Trainer:
    """One captioner, its data, and the folder that remembers how far it got."""

    recipe: Recipe
    batches: Batches
    held_out: Sequence[Captioned]
    run: Run
    save_best: Callable[[Captioner[Any, Any], float, str], None]
    precision: torch.dtype

    def train(self, captioner: Captioner[Any, Any]) -> None:
        """Cross-entropy for ``recipe.steps``; resumes from the run's folder where there is one."""
        optimizer = torch.optim.AdamW(
            captioner.parameters(), weight_decay=self.recipe.weight_decay, betas=(0.9, 0.98), fused=True
        )
        learner = Learner.of(captioner, optimizer, self.recipe.average_decay)
        steps, every = self.recipe.steps, self.recipe.validate_every
        phase = Phase("cross_entropy", steps, every, self.batches, self._cross_entropy, self._cosine_rate)
        self._run(phase, learner)

    def refine(self, captioner: Captioner[Any, Any], reward: SelfCritical) -> None:
        """Self-critical steps from the weights ``captioner`` has; kept only where validation gains."""
        recipe = self.recipe
        optimizer = torch.optim.Adam(captioner.parameters(), fused=True)
        learner = Learner.of(captioner, optimizer, recipe.average_decay)

        def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
            generator = _generator(recipe.seed, step, 2)
            return reward.loss(learner.captioner, batch, generator, self.precision)

        def rate(step: int) -> float:
            return recipe.self_critical_rate * _cosine(step / recipe.self_critical_steps)

        batches = replace(self.batches, captions=recipe.self_critical_captions)
        steps, every = recipe.self_critical_steps, recipe.self_critical_every
        self._run(Phase("self_critical", steps, every, batches, loss, rate), learner)

    def _run(self, phase: Phase, learner: Learner) -> None:
        first, best = self._resume(phase, learner)
        validation = Validation(self.held_out, self.batches.vocabulary, self.recipe.max_length)
        if phase.steps == 0 and best == -math.inf:  # what a later phase has to surpass
            self._checkpoint(phase, 0, learner, validation, best)
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
                    best = self._checkpoint(phase, step + 1, learner, validation, best)
                    bar.set_postfix(cider=f"{best:.1f}")

    def _step(self, phase: Phase, learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        learner.captioner.train()
        torch.manual_seed(self.recipe.seed * 1_000_003 + step)
        losses = phase.loss(learner, batch, step)
        learner.update(losses["total"], phase.rate(step), self.recipe.clip)
        return losses

    def _resume(self, phase: Phase, learner: Learner) -> tuple[int, float]:
        """(first step to take, best CIDEr-D so far); a phase that the run has left behind takes none."""
        state = self.run.load()
        if state is None:
            return 0, -math.inf
        if PHASES.index(state["phase"]) > PHASES.index(phase.name):
            return phase.steps, float(state["best"])
        if state["phase"] != phase.name:
            return 0, float(state["best"])
        learner.restore(state)
        return int(state["step"]), float(state["best"])

    def _cross_entropy(self, learner: Learner, batch: TrainingBatch, step: int) -> dict[str, Tensor]:
        captioner: Any = learner.captioner
        with torch.autocast("cpu", self.precision, enabled=self.precision != torch.float32):
            memory = captioner.encode_batches(batch.of(captioner))
            loss = caption_loss(
                captioner,
                memory_to_learn_from(captioner, memory, _generator(self.recipe.seed, step, 3)),
                batch.targets,
                smoothing=self.recipe.smoothing,
                teacher_forcing=teacher_forcing_ratio(step / self.batches.steps_per_epoch),
                generator=_generator(self.recipe.seed, step, 1),
                true_steps=batch.true_steps,
                soft=batch.soft,
                soft_weight=self.recipe.soft_weight,
            )
        own = self.recipe.ranking_weight * loss.auxiliary + self.recipe.shot_weight * loss.shot
        total = loss.cross_entropy + own
        return {"total": total, "loss": loss.cross_entropy, "auxiliary": loss.auxiliary, "shot": loss.shot}

    def _cosine_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to a hundredth."""
        warm = min(1.0, (step + 1) / self.recipe.warmup)
        return self.recipe.learning_rate * warm * _cosine(step / self.recipe.steps)

    def _report(self, phase: Phase, step: int, losses: dict[str, Tensor], seconds: float) -> None:
        values = {name: float(value.detach()) for name, value in losses.items() if name != "total"}
        row = {"phase": phase.name, "step": step + 1, "learning_rate": phase.rate(step), "seconds": seconds}
        self.run.log(row | values)

    def _checkpoint(
        self, phase: Phase, step: int, learner: Learner, validation: Validation, best: float
    ) -> float:
        """Score the averaged weights after ``step`` steps, keep them if they are the best, save the state."""
        averaged: Any = learner.average.module
        cider = validation.cider(averaged, self.precision)
        self.run.log({"phase": phase.name, "step": step, "cider": cider})
        if cider >= best:  # of equals the last: what is trained may not show in single pictures
            self.save_best(averaged, cider, f"{phase.name} step {step}")
        best = max(cider, best)
        self.run.save({"phase": phase.name, "step": step, "best": best, **learner.state()})
        return best


def _cosine(share: float) -> float:
    return max(0.5 * (1 + math.cos(math.pi * share)), 0.01)


def _generator(seed: int, step: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 16 + purpose) * 10_000_019 + step)
