"""Keeps a training run in its folder: state, log, best checkpoint."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer, RMSprop
from torch.optim.swa_utils import AveragedModel

from extractors.files import atomic_write
from models.captioner import AnyCaptioner
from models.checkpoint import load_checkpoint
from training.recipes.recipe import Recipe

FIELDS = (
    *("phase", "step", "loss", "auxiliary", "shot", "step_1", "refocusing", "reward"),
    *("learning_rate", "cider", "shots_cider", "recall", "recall_1", "recall_5", "recall_10", "seconds"),
)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """``folder`` holds last.pt, log.csv and best.safetensors."""

    folder: Path

    @property
    def best(self) -> Path:
        return self.folder / "best.safetensors"

    def best_after(self, phase: str) -> AnyCaptioner:
        """The best weights when that phase ended, kept under its name for a run that is stopped later."""
        kept = self.folder / f"{phase}.safetensors"
        if not kept.exists():
            with atomic_write(kept) as unfinished:
                shutil.copy(self.best, unfinished)
        return load_checkpoint(kept).captioner

    def log(self, row: Mapping[str, Any]) -> None:
        """One row a report; a column that does not apply stays empty."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log.csv"
        columns = _columns(path)
        with path.open("a", newline="") as file:
            writer = csv.DictWriter(file, columns or FIELDS, extrasaction="ignore")
            if not columns:
                writer.writeheader()
            writer.writerow(
                {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
            )

    def save(self, state: Mapping[str, Any]) -> None:
        """Replaces last.pt in one move, so that a kill leaves the old or the new."""
        with atomic_write(self.folder / "last.pt") as unfinished:
            torch.save(dict(state), unfinished)

    def load(self) -> dict[str, Any] | None:
        path = self.folder / "last.pt"
        return torch.load(path, weights_only=True) if path.exists() else None


def _columns(path: Path) -> list[str]:
    """Those that a log has; an older version's may be fewer than FIELDS."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


Tensors = tuple[Tensor, ...] | list[Tensor]


def _warm_average(decay: float) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """A moving average that forgets its first, untrained weights sooner than ``decay`` would."""

    @torch.no_grad()
    def update(averaged: Tensors, current: Tensors, count: Tensor | int) -> None:
        torch._foreach_lerp_(averaged, current, 1 - min(decay, float((1 + count) / (10 + count))))

    return update


@dataclass(frozen=True, eq=False)
class Learner:
    """The weights being trained, their moving average, and the optimiser."""

    captioner: nn.Module
    average: AveragedModel
    optimizer: Optimizer

    @classmethod
    def of(cls, captioner: nn.Module, optimizer: Optimizer, decay: float) -> Learner:
        average = AveragedModel(captioner, multi_avg_fn=_warm_average(decay))
        average.module.requires_grad_(False)
        return cls(captioner, average, optimizer)

    def update(self, loss: torch.Tensor, rate: float, clip: float) -> None:
        """One step of the optimiser at ``rate``, gradients clipped to norm ``clip``."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.captioner.parameters(), clip)
        self.optimizer.step()
        self.average.update_parameters(self.captioner)

    def state(self) -> dict[str, Any]:
        return {
            "captioner": self.captioner.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.captioner.load_state_dict(state["captioner"])
        self.average.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])


# A recipe's optimiser over a network's parameters.


def learner_of(recipe: Recipe, network: nn.Module) -> Learner:
    """The network with a fresh optimiser and a fresh average of its weights."""
    return Learner.of(network, optimizer_of(recipe, network), recipe.average_decay)


def refining(recipe: Recipe) -> Recipe:
    """Self-critical steps are Adam's own, without decay; RMSprop stays (STaTS)."""
    if recipe.optimizer == "rmsprop":
        return recipe
    return recipe.model_copy(update={"optimizer": "adam", "weight_decay": 0.0, "betas": (0.9, 0.999)})


def optimizer_of(recipe: Recipe, network: nn.Module) -> Optimizer:
    """The rate is set at every step, and not here."""
    if recipe.optimizer == "rmsprop":
        return RMSprop(network.parameters(), weight_decay=recipe.weight_decay)
    kind = AdamW if recipe.optimizer == "adamw" else Adam
    return kind(network.parameters(), weight_decay=recipe.weight_decay, betas=recipe.betas, fused=True)
