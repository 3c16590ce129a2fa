"""Declares ``reelword weights``; app/cli/weight_files.py does it."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import AsJson, settings_with
from extractors.media.errors import MissingFile

Names = Annotated[
    list[str], typer.Argument(metavar="NAME", help="As weights list has it.", show_default=False)
]

weights = typer.Typer(no_args_is_help=True)


@weights.command("list")
def list_weights(as_json: AsJson = False) -> None:
    """List the weights of weights/manifest.toml: their source, licence, and whether they are here."""
    from app.cli.weight_files import print_weights

    print_weights(settings_with(), as_json=as_json)


@weights.command()
def get(names: Names) -> None:
    """Download weights into the data folder; what broke off goes on where it stopped."""
    from app.cli.weight_files import get_weights

    raise typer.Exit(get_weights(names, settings_with()))


@weights.command()
def add(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file you have; of hub:NAME a folder, or OWNER/NAME.", show_default=False
        ),
    ],
    name: Annotated[str, typer.Option("--as", metavar="NAME", help="Whose weights it is.")],
) -> None:
    """Copy a file of weights into the data folder, once the network can be built from it."""
    from extractors.pretrained.weights_folder import HUB

    if name.startswith(HUB):
        from app.cli.weight_files import add_encoder

        add_encoder(str(file), name, settings_with())
        return
    if not file.is_file():
        raise MissingFile(f"There is no file {file}.")
    from app.cli.weight_files import add_weights

    raise typer.Exit(add_weights(file, name, settings_with()))


@weights.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
) -> None:
    """Check every byte of the weights that are here, or of those that are named."""
    from app.cli.weight_files import verify_weights

    raise typer.Exit(verify_weights(names or [], settings_with()))
