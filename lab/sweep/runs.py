"""Trains a recipe with several values and seeds, each in a folder of its own, and makes one table of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

from extractors.files import atomic_write
from models.checkpoint import read_card
from training.batches.video_batches import Notify
from training.optimization.progress import NotFinite
from training.recipes.changes import FieldRefused

#: Metrics of a card → their columns.
COLUMNS: Mapping[str, str] = {
    "bleu4": "BLEU-4",
    "meteor": "METEOR",
    "rouge_l": "ROUGE-L",
    "cider": "CIDEr-D",
    "validation_loss": "loss",
}


@dataclass(frozen=True)
class SweepPoint:
    """One run of a sweep."""

    changes: tuple[str, ...]  #: FIELD=VALUE of each field that is swept
    seed: int

    @property
    def name(self) -> str:
        """What its values are called in the table."""
        return ", ".join(self.changes) or "the recipe"

    @property
    def folder(self) -> str:
        values = "+".join(each.replace("/", "_").replace(" ", "") for each in self.changes)
        return f"{values or 'recipe'}/seed{self.seed}"


def list_points(over: Sequence[str], seeds: Sequence[int]) -> list[SweepPoint]:
    """Lists all combinations of values and seeds, one seed of each first.

    over: FIELD=VALUE,VALUE… each. Raises FieldRefused.
    """
    axes = [list(_split_values(each)) for each in over]
    return [SweepPoint(changes, seed) for seed in seeds for changes in product(*axes)]


def _split_values(text: str) -> Iterator[str]:
    name, is_pair, values = text.partition("=")
    if not is_pair or not values:
        raise FieldRefused(f"{text!r} is no field=value,value….")
    try:  # brackets keep commas together
        parts = [json.dumps(each) for each in json.loads(f"[{values}]")]
    except ValueError:
        parts = values.split(",")
    return (f"{name}={part}" for part in parts)


def run_sweep(
    points: Sequence[SweepPoint], out: Path, train: Callable[[SweepPoint, Path], Path], notify: Notify
) -> str:
    """Trains all points, and writes table.md and table.csv after each; finished ones take no further step.

    Args:
        points: The runs.
        out: The sweep's folder.
        train: Trains one in its folder and returns its best checkpoint.
        notify: Is told of each run, and of those whose losses became no numbers.

    Returns:
        The table as markdown.
    """
    scores: dict[str, list[Mapping[str, float]]] = {point.name: [] for point in points}
    for number, point in enumerate(points, 1):
        notify(f"{number} of {len(points)}: {point.name}, seed {point.seed}")
        try:
            best = train(point, out / point.folder)
        except NotFinite as error:
            notify(f"{point.name}, seed {point.seed} is left out: {error}")
            continue
        scores[point.name].append(next(iter(read_card(best).scores.values())))
        _write(out / "table.csv", format_csv(scores))
        _write(out / "table.md", format_table(scores))
    return format_table(scores)


def format_table(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Formats values → scores of their runs as markdown: mean ± standard deviation over the seeds."""
    names = _list_metrics(scores)
    head = ["values", "runs", *(COLUMNS[name] for name in names)]
    rows = [
        [values, str(len(runs)), *(_describe(*_summarise(runs, name)) for name in names)]
        for values, runs in scores.items()
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def format_csv(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> str:
    """Formats the same with mean and standard deviation in columns of their own."""
    text, names = io.StringIO(), _list_metrics(scores)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["values", "runs", *(f"{name}_{part}" for name in names for part in ("mean", "sd"))])
    for values, runs in scores.items():
        numbers = [number for name in names for number in _summarise(runs, name)]
        writer.writerow([values, len(runs), *("" if np.isnan(each) else f"{each:.4f}" for each in numbers)])
    return text.getvalue()


def _list_metrics(scores: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    return [name for name in COLUMNS if any(name in run for runs in scores.values() for run in runs)]


def _summarise(runs: Sequence[Mapping[str, float]], name: str) -> tuple[float, float]:
    """Computes mean and standard deviation (of a sample) of a metric; nan where there are too few runs."""
    values = [run[name] for run in runs if name in run]
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
    return (float(np.mean(values)) if values else np.nan), deviation


def _describe(mean: float, deviation: float) -> str:
    if np.isnan(mean):
        return ""
    return f"{mean:.2f}" if np.isnan(deviation) else f"{mean:.2f} ± {deviation:.2f}"


def _write(file: Path, text: str) -> None:
    with atomic_write(file) as unfinished:
        unfinished.write_text(text, encoding="utf-8")
