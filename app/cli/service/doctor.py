"""Declares ``reelword doctor``; app/cli/service/examination.py looks, and imports what is slow to import."""

import typer

from app.cli.model_options import AsJson, settings_with


def doctor(as_json: AsJson = False) -> None:
    """Prints what was found, and exits with 1 where something is wrong."""
    from app.cli.service.examination import examine

    raise typer.Exit(1 if examine(settings_with(), as_json=as_json) else 0)
