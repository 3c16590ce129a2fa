"""Declares ``reelword doctor``; app/cli/service/examination.py looks."""

from typing import Annotated

import typer

from app.cli.commands import read_settings


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Prints what was found, and exits with 1 where something is wrong."""
    from app.cli.service.examination import examine

    raise typer.Exit(1 if examine(read_settings(), as_json=as_json) else 0)
