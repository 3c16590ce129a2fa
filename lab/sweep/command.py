"""Declares ``python -m lab sweep``: the options of ``train``, with several values and seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import FieldsOf
from app.cli.training.shared_options import RunOptions, SavedFeatureOptions
from app.cli.training.train import CaptionerName, DataFolder, RecipeName, open_training
from lab.pictures.command import train_on_pictures
from lab.sweep.runs import SweepPoint, list_points, run_sweep
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
    opened = open_training(captioner, data, recipe, options, saved, run, train_on_pictures)
    with opened as (notify, train):

        def train_point(point: SweepPoint, folder: Path) -> Path:
            return train(folder, point.seed, point.changes)

        notify(run_sweep(list_points(over or (), _parse_seeds(seeds)), out, train_point, notify))


def _parse_seeds(text: str) -> list[int]:
    try:
        return [int(each) for each in text.split(",")]
    except ValueError as error:
        raise typer.BadParameter(
            f"--seeds: {text!r} is not whole numbers with commas between them"
        ) from error
