"""Declares ``reelword plot``; training/evaluation/plot.py draws."""

from pathlib import Path
from typing import Annotated

import typer


def plot(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of training runs.")],
    out: Annotated[Path, typer.Option(help="The picture.")] = Path("curves.png"),
) -> None:
    """Draws loss and held-out CIDEr-D of runs by step, all in one picture."""
    from training.evaluation.plot import NoCurves, draw, read_curves

    try:
        draw([read_curves(run) for run in runs]).savefig(out)
    except NoCurves as error:
        raise typer.BadParameter(str(error)) from error
    typer.echo(out)
