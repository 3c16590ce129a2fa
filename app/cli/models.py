"""Declares ``python -m app models``; app/cli/model_listing.py prints."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

models = typer.Typer(invoke_without_command=True)


@models.callback()
def list_models(
    context: typer.Context,
    as_json: AsJson = False,
    sets: Annotated[
        bool, typer.Option("--sets", help="The stream sets that captioners can be fed with, alone.")
    ] = False,
) -> None:
    """List captioners, a line each; show NAME tells the rest of one."""
    if context.invoked_subcommand is not None:
        return
    from app.cli.model_listing import print_models, print_sets
    from app.settings import load_settings

    settings = load_settings()
    if sets:
        print_sets(settings.data, as_json=as_json)
    else:
        print_models(settings, as_json=as_json)


@models.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As models lists it.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """Show a captioner whole: its features, scores by set of data, size, speed and source."""
    from app.cli.model_listing import print_model
    from app.settings import load_settings

    print_model(name, load_settings(), as_json=as_json)
