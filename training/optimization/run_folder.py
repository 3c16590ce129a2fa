"""Keeps a training run in its folder: state, log, best checkpoint."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from extractors.files import atomic_write
from models.captioner import AnyCaptioner
from models.checkpoint import load_checkpoint
from training.batches.video_batches import Notify
from training.optimization.processes import ALONE, Processes
from training.precision import CPU
from training.recipes.train_options import PrecisionName
from training.saved_features.feature_folder import FeatureFolder

FIELDS = (
    *("phase", "step", "loss", "auxiliary", "shot", "reward"),
    *("learning_rate", "cider", "shots_cider", "log_likelihood"),
    *("recall", "recall_1", "recall_5", "recall_10", "seconds"),
)


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """``folder`` holds last.pt, log.csv and best.safetensors."""

    folder: Path
    device: torch.device = CPU  #: of the networks that are trained

    @property
    def best(self) -> Path:
        return self.folder / "best.safetensors"

    def best_after(self, phase: str) -> AnyCaptioner:
        """Loads the best weights when that phase ended; they are kept for a run that is stopped later."""
        kept = self.folder / f"{phase}.safetensors"
        if not kept.exists():
            with atomic_write(kept) as unfinished:
                shutil.copy(self.best, unfinished)
        return load_checkpoint(kept, self.device).captioner

    def log(self, row: Mapping[str, Any]) -> None:
        """Appends a row to log.csv; a column that does not apply stays empty, a new one comes last."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "log.csv"
        columns = _read_columns(path) or list(FIELDS)
        if not path.exists() or not row.keys() <= set(columns):
            columns += [name for name in row if name not in columns]
            _write_columns(path, columns)
        with path.open("a", newline="") as file:
            csv.DictWriter(file, columns).writerow(
                {key: f"{value:.5g}" if isinstance(value, float) else value for key, value in row.items()}
            )

    def save(self, state: Mapping[str, Any]) -> None:
        """Replaces last.pt in one move, so that a kill leaves the old or the new."""
        with atomic_write(self.folder / "last.pt") as unfinished:
            torch.save(dict(state), unfinished)

    def load(self) -> dict[str, Any] | None:
        """Reads the last saved state, on the CPU wherever it was saved; None where the run has none."""
        path = self.folder / "last.pt"
        return torch.load(path, map_location="cpu", weights_only=True) if path.exists() else None


def _read_columns(path: Path) -> list[str]:
    """Returns the columns that a log has; an older version's may be fewer than FIELDS."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return next(csv.reader(file), [])


def _write_columns(path: Path, columns: list[str]) -> None:
    """Gives a log these columns, the old ones first."""
    rows: list[dict[str, Any]] = []
    if path.exists():
        with path.open(newline="") as file:
            rows = list(csv.DictReader(file))
    with atomic_write(path) as unfinished, unfinished.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        writer.writerows(rows)


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run that no recipe has."""

    out: Path  #: the run's folder, from which a stopped run continues
    cache: Path  #: where features are kept
    notify: Notify  #: is given a sentence for whatever the user should know
    threads: int = 2  #: of the processor
    device: torch.device = CPU  #: that computes
    processes: Processes = ALONE  #: that train together; the first one alone notifies
    #: Those of videos that were made before, in the place of features that are made now.
    features: FeatureFolder | None = None
    precision: PrecisionName = "auto"  #: what networks compute in
