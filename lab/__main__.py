"""Declares ``python -m lab``: one command a study."""

from __future__ import annotations

import typer

from app.cli.main import Commands, PlainCommand
from lab.ablations.command import ablate
from lab.attention import attention
from lab.checkpoints.average_weights import average
from lab.checkpoints.compare_checkpoints import compare
from lab.judging.command import judge
from lab.streams import streams

PROGRAM = "python -m lab"

lab = typer.Typer(
    cls=Commands,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Measure captioners, their attention and their streams; average checkpoints.",
)
for study in (ablate, attention, average, compare, judge, streams):
    lab.command(cls=PlainCommand)(study)

if __name__ == "__main__":
    lab(prog_name=PROGRAM)
