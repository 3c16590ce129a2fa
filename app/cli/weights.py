"""``python -m app weights``: what can be asked for; app/cli/manage_weights.py does it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.settings import Settings

weights = typer.Typer(no_args_is_help=True, help="List, get, add and verify the networks' published weights.")
Names = Annotated[
    list[str], typer.Argument(metavar="NAME", help="As weights list has it.", show_default=False)
]


def settings() -> Settings:
    """From app/cli/main.py, which this is part of."""
    from app.cli.settings import load_settings

    return load_settings()


@weights.command("list")
def show(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """List the weights of weights/manifest.toml: their source, licence, and whether they are here."""
    from app.cli.manage_weights import print_weights

    print_weights(settings(), as_json=as_json)


@weights.command()
def get(names: Names) -> None:
    """Download weights into the data folder; what broke off goes on where it stopped."""
    from app.cli.manage_weights import get_weights

    raise typer.Exit(get_weights(names, settings()))


@weights.command()
def add(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file you have.", show_default=False)],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Whose weights it is.")],
) -> None:
    """Copy a file of weights into the data folder, once the network can be built from it."""
    from app.cli.manage_weights import add_weights

    raise typer.Exit(add_weights(file, name, settings()))


@weights.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
) -> None:
    """Check every byte of the weights that are here, or of those that are named."""
    from app.cli.manage_weights import verify_weights

    raise typer.Exit(verify_weights(names or [], settings()))
