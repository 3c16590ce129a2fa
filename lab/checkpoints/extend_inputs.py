"""Gives a captioner what another, that went on from it, has learned to read beside, and nothing else of it.

    python -m lab extend START TRAINED --out FILE

What reads further streams are further columns of matrices (lab/pictures/session.py), or weights that the
start has not; those come from the trained one, all others from the start, so that what further steps cost
is not paid (docs/results/motion.md).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from torch import Tensor

from lab.pictures.session import match_weights
from models.captioner import Captioner
from models.captioners.registry import UnknownCaptioner
from models.checkpoint import CheckpointError, find_checkpoint, load_checkpoint, save_checkpoint


def join_weights(start: Captioner, trained: Captioner, file: Path) -> dict[str, Tensor]:
    """Joins the start's weights with the further ones, and further columns, of the trained one.

    Args:
        start: Reads fewer streams.
        trained: Went on from it.
        file: Of the start, for the error.

    Raises:
        CheckpointError: The two differ in words or widths.
    """
    weights, before = match_weights(start, trained, file), start.state_dict()
    for name, value in trained.state_dict().items():
        if name in before and before[name].shape != value.shape:
            columns = before[name].shape[1]
            weights[name][:, columns:] = value[:, columns:]
    return weights


def extend(
    start: Annotated[str, typer.Argument(help="A captioner by name, or a checkpoint file.")],
    trained: Annotated[Path, typer.Argument(help="A checkpoint that went on from it with more streams.")],
    out: Annotated[Path, typer.Option(help="Where the joined checkpoint is written.")],
) -> None:
    """Extend a captioner by the weights with which another reads further streams; it has no scores yet."""
    try:
        file = find_checkpoint(start)
        first, last = load_checkpoint(file), load_checkpoint(trained)
        last.captioner.load_state_dict(join_weights(first.captioner, last.captioner, file))
    except (CheckpointError, UnknownCaptioner) as error:
        raise typer.BadParameter(str(error)) from error
    began = {name: value for name, value in first.card.training.items() if name != "ids"}
    training = {**last.card.training, "extends": began}
    save_checkpoint(out, last.captioner, replace(last.card, scores={}, training=training))
    typer.echo(f"extended checkpoint: {out}")
