"""Declares ``python -m lab``: one command a study. Parts are imported when they are asked for."""

from __future__ import annotations

import typer

from app.cli.main import Commands, PlainCommand
from lab.ablations.command import ablate
from lab.judging.command import judge

PROGRAM = "python -m lab"

lab = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Measure captioners: ablations, marks by eye.",
)
lab.command(cls=PlainCommand)(ablate)
lab.command(cls=PlainCommand)(judge)

if __name__ == "__main__":
    lab(prog_name=PROGRAM)
