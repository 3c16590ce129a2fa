"""Declares ``reelword models``; app/cli/model_listing.py prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import FieldsOf
from app.cli.server import ServerChoice

if TYPE_CHECKING:
    from app.cli.model_listing import Model

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

models = typer.Typer(invoke_without_command=True)


@models.callback()
def list_models(
    context: typer.Context,
    service: Annotated[ServerChoice, FieldsOf("Whose captioners")],
    as_json: AsJson = False,
    sets: Annotated[
        bool, typer.Option("--sets", help="The stream sets that captioners can be fed with, alone.")
    ] = False,
) -> None:
    """List captioners, a line each; show NAME tells the rest of one."""
    if context.invoked_subcommand is not None:
        return
    if sets:
        from app.cli.installed_models import print_sets
        from app.settings import load_settings

        print_sets(load_settings().data, as_json=as_json)
        return
    from app.cli.model_listing import print_models

    print_models(_describe(service), as_json=as_json)


@models.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="As models lists it.", show_default=False)],
    service: Annotated[ServerChoice, FieldsOf("Whose captioners")],
    as_json: AsJson = False,
) -> None:
    """Show a captioner whole: its features, scores by set of data, size, speed and source."""
    from app.cli.model_listing import print_model

    print_model(name, _describe(service), as_json=as_json)


def _describe(service: ServerChoice) -> list[Model]:
    from app.settings import load_settings

    settings = load_settings()
    if (server := service.find(settings)) is not None:
        from app.cli.model_listing import ask_models

        return ask_models(server)
    from app.cli.installed_models import describe_models

    return describe_models(settings)
