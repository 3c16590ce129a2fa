"""Keeps a training run in its folder: state, log, best checkpoint."""

import csv
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch

from extractors.files import atomic_write
from models.captioner import Captioner
from models.checkpoint import load_checkpoint
from training.batches.training_batch import CaptionedItem
from training.batches.video_batches import Notify
from training.optimization.processes import ALONE, Processes
from training.precision import CPU
from training.recipes.train_options import PrecisionName
from training.runs.run_record import RunDescription, RunSession, claim_folder
from training.runs.tracking import Tracker, TrackerName, open_tracker
from training.saved_features.feature_folder import FeatureFolder

FIELDS = (
    *("phase", "step", "loss", "auxiliary", "shot", "reward"),
    *("learning_rate", "gradient_norm", "cider", "shots_cider", "log_likelihood"),
    *("bleu4", "meteor", "rouge_l", "validation_loss", "kept_by"),
    *("recall", "recall_1", "recall_5", "recall_10", "seconds"),
)
#: Held-out items whose captions are written down at every validation.
SAMPLES = 8


@dataclass(frozen=True, eq=False)
class TrainingRun:
    """``folder`` holds run.json, last.pt, log.csv, samples.jsonl and best.safetensors."""

    folder: Path
    device: torch.device = CPU  #: of the networks that are trained
    log_every: int | None = None  #: steps, whose means are a row of the log
    save_every: float = 300.0  #: seconds after which the state is saved without a validation
    keep: int = 1  #: checkpoints, the best ones; further ones than the best are below top/
    tracker: Tracker | None = None  #: is given what is logged

    @property
    def best(self) -> Path:
        return self.folder / "best.safetensors"

    def best_after(self, phase: str) -> Captioner:
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
        if self.tracker is not None:
            numbers = {name: value for name, value in row.items() if isinstance(value, float)}
            self.tracker(row["phase"], row["step"], numbers)

    def write_samples(self, place: Mapping[str, Any], captioned: Sequence[tuple[CaptionedItem, str]]) -> None:
        """Appends captions of a few items, always the same ones, to samples.jsonl; place: phase and step."""
        lines = [
            {**place, "id": item.id, "caption": caption, "people": " ".join(item.captions[0])}
            for item, caption in captioned[:: max(1, len(captioned) // SAMPLES)]
        ]
        with (self.folder / "samples.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in lines[:SAMPLES])

    def keep_best(self, scores: Mapping[str, float]) -> dict[str, float]:
        """Returns the best ``keep`` of checkpoints' scores by file, and removes the other files."""
        ranked = sorted(scores.items(), key=itemgetter(1), reverse=True)
        for dropped, _ in ranked[self.keep :]:
            (self.folder / dropped).unlink(missing_ok=True)
        return dict(ranked[: self.keep])

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
    log_every: int | None = None  #: as of TrainingRun, as the next two
    save_every: float = 300.0
    keep: int = 1
    track: TrackerName | None = None  #: what shows the log
    #: Of the captioner's configuration what differs from its recipe's: field → value.
    config: Mapping[str, Any] = field(default_factory=dict)

    def open_run(self, description: RunDescription) -> TrainingRun:
        """Takes the folder for a run, or goes on with it where it is the same. Raises RunDiffers."""
        with self.processes.first_alone():
            if self.processes.is_first:
                session = RunSession.begin(str(self.device), self.processes.count)
                claim_folder(self.out, description, session)
        if self.track is None or not self.processes.is_first:
            return self.make_run()
        return replace(self.make_run(), tracker=open_tracker(self.track, self.out))

    def make_run(self) -> TrainingRun:
        """Makes the run in the folder, whose it may be."""
        return TrainingRun(self.out, self.device, self.log_every, self.save_every, self.keep)
