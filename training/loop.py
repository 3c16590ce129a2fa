"""Training a captioner: cross-entropy first, self-critical steps after.

A step is a function of the seed and its number (``Batches.at``, one generator a step), so a run that was
killed goes on exactly where its last saved state stands.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from tqdm import tqdm

from models.captioner import Captioner
from training.dataset import Batches, Captioned, TrainingBatch
from training.losses import caption_loss, teacher_forcing_ratio
from training.recipes import Recipe
from training.run import Learner, Run
from training.self_critical import SelfCritical
from training.validate import Validation

REPORT_EVERY = 20


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
        self._phase("cross_entropy", learner, self.recipe.steps, self._cross_entropy, self._cosine_rate)

    def refine(self, captioner: Captioner[Any, Any], reward: SelfCritical) -> None:
        """Self-critical training from the weights ``captioner`` has; kept only where validation gains."""
        optimizer = torch.optim.Adam(captioner.parameters(), fused=True)
        learner = Learner.of(captioner, optimizer, self.recipe.average_decay)

        def loss(learner: Learner, batch: TrainingBatch, step: int) -> dict[str, torch.Tensor]:
            return reward.loss(
                learner.captioner, batch, _generator(self.recipe.seed, step, 2), self.precision
            )

        steps, rate = self.recipe.self_critical_steps, self.recipe.self_critical_rate
        self._phase("self_critical", learner, steps, loss, lambda _: rate)

    def _phase(
        self,
        phase: str,
        learner: Learner,
        steps: int,
        loss: Callable[[Learner, TrainingBatch, int], dict[str, torch.Tensor]],
        rate: Callable[[int], float],
    ) -> None:
        first, best = self._resume(phase, learner)
        validation = Validation(self.held_out, self.batches.vocabulary, self.recipe.max_length)
        clock = time.monotonic()
        with ThreadPoolExecutor(1) as ahead, tqdm(total=steps, initial=first, desc=phase, unit="step") as bar:
            coming: Future[TrainingBatch] = ahead.submit(self.batches.at, first)
            for step in range(first, steps):
                batch, coming = coming.result(), ahead.submit(self.batches.at, step + 1)
                learner.captioner.train()
                torch.manual_seed(self.recipe.seed * 1_000_003 + step)
                losses = loss(learner, batch, step)
                learner.update(losses["total"], rate(step), self.recipe.clip)
                bar.update()
                if (step + 1) % REPORT_EVERY == 0:
                    self._report(phase, step + 1, losses, rate(step), time.monotonic() - clock)
                if (step + 1) % self.recipe.validate_every == 0 or step + 1 == steps:
                    best = self._validate(phase, step + 1, learner, validation, best)
                    bar.set_postfix(cider=f"{best:.1f}")
                    self.run.save({"phase": phase, "step": step + 1, "best": best, **learner.state()})

    def _resume(self, phase: str, learner: Learner) -> tuple[int, float]:
        state = self.run.load()
        if state is None or state["phase"] != phase:
            return 0, -math.inf if state is None else float(state["best"])
        learner.restore(state)
        return int(state["step"]), float(state["best"])

    def _cross_entropy(self, learner: Learner, batch: TrainingBatch, step: int) -> dict[str, torch.Tensor]:
        captioner: Any = learner.captioner
        with torch.autocast("cpu", self.precision, enabled=self.precision != torch.float32):
            memory = captioner.encode_batches([batch.batch])
            loss = caption_loss(
                captioner,
                memory,
                batch.targets,
                smoothing=self.recipe.smoothing,
                teacher_forcing=teacher_forcing_ratio(step / self.batches.steps_per_epoch),
                generator=_generator(self.recipe.seed, step, 1),
            )
        total = loss.cross_entropy + self.recipe.ranking_weight * loss.auxiliary
        return {"total": total, "loss": loss.cross_entropy, "auxiliary": loss.auxiliary}

    def _cosine_rate(self, step: int) -> float:
        """Linear warm-up, then half a cosine down to a hundredth."""
        warm = min(1.0, (step + 1) / self.recipe.warmup)
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.recipe.steps))
        return self.recipe.learning_rate * warm * max(cosine, 0.01)

    def _report(
        self, phase: str, step: int, losses: dict[str, torch.Tensor], rate: float, seconds: float
    ) -> None:
        values = {name: float(value.detach()) for name, value in losses.items() if name != "total"}
        self.run.log({"phase": phase, "step": step, "learning_rate": rate, "seconds": seconds, **values})

    def _validate(
        self, phase: str, step: int, learner: Learner, validation: Validation, best: float
    ) -> float:
        averaged: Any = learner.average.module
        cider = validation.cider(averaged, self.precision)
        self.run.log({"phase": phase, "step": step, "cider": cider})
        if cider > best:
            self.save_best(averaged, cider, f"{phase} step {step}")
        return max(cider, best)


def _generator(seed: int, step: int, purpose: int) -> torch.Generator:
    return torch.Generator().manual_seed((seed * 16 + purpose) * 10_000_019 + step)
