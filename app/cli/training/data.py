"""Declares ``reelword data``; app/cli/training/set_report.py prints what of a captioned set is there."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from app.cli.model_options import AsJson

data = typer.Typer(no_args_is_help=True)


@data.callback()
def take_no_options() -> None:
    """Says of captioned sets what is there and what is missing."""


@data.command()
def check(
    name: Annotated[str, typer.Argument(metavar="SET", help="msvd, msrvtt, vatex …; see docs/data.md.")],
    root: Annotated[Path, typer.Option(help="The folder with its annotations and videos.")],
    paper: Annotated[
        str | None, typer.Option(help="Whose splits and words the set has; see docs/data.md.")
    ] = None,
    probe: Annotated[
        Literal["none", "header", "deep"],
        typer.Option(help="Look for files alone, open each one's header, or decode frames of each."),
    ] = "header",
    as_json: AsJson = False,
) -> None:
    """Say what of a set is there and how to get the rest; exit status 1 where anything needed is missing."""
    from app.cli.training.set_report import report_set
    from training.datasets.errors import DataSetError

    try:
        is_complete = report_set(name, root, paper, probe, as_json=as_json)
    except DataSetError as error:
        typer.echo(error.advice, err=True)
        raise typer.Exit(2) from error
    raise typer.Exit(0 if is_complete else 1)
