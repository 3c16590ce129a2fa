"""Declares ``python -m lab sweep``: the options of ``train``, with several values and seeds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import FieldsOf
from app.cli.training.shared_options import RunOptions, SavedFeatureOptions
from app.cli.training.train import CaptionerName, DataFolder, RecipeName, TrainedRuns
from training.recipes.train_options import TrainOptions


def sweep(
    captioner: CaptionerName,
    data: DataFolder,
    out: Annotated[Path, typer.Option(help="Where each run has its folder, and table.md and table.csv lie.")],
    options: Annotated[TrainOptions, FieldsOf(leave_out=("features",))],
    saved: Annotated[SavedFeatureOptions, FieldsOf()],
    run: Annotated[RunOptions, FieldsOf()],
    over: Annotated[
        list[str] | None,
        typer.Option(help="FIELD=VALUE,VALUE… of the recipe or the captioner's widths; may be repeated."),
    ] = None,
    seeds: Annotated[str, typer.Option(help="Seeds, with commas between them.")] = "2020,2021,2022",
    recipe: RecipeName = None,
) -> None:
    """Trains all combinations of values and seeds; prints means and standard deviations as one table."""
    from lab.pictures.command import train_on_pictures

    with TrainedRuns.open(captioner, data, recipe, options, saved, run, train_on_pictures) as runs:
        from lab.sweep.runs import SweepPoint, list_points, run_sweep

        def train_point(point: SweepPoint, folder: Path) -> Path:
            changes = [*(options.changes or ()), *point.changes]
            changed = replace(runs, options=runs.options.model_copy(update={"changes": changes}))
            return changed.train(folder, point.seed)

        points = list_points(over or (), _parse_seeds(seeds))
        runs.settings.notify(run_sweep(points, out, train_point, runs.settings.notify))


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--seeds: {text!r} is not whole numbers with commas between them"
        ) from error
