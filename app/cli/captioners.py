"""``reelword captioners``: pretrained captioners, brought from a hub or a folder, listed, removed, published.

A repository has a checkpoint as ``reelword.safetensors``, or an adapter's files, and README.md beside it.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import AsJson, settings_with
from app.errors import UsageError
from app.terminal import complain, print_table, printable, say
from extractors.errors import ReelwordError
from models.pretrained.adapters.card import CHECKPOINT

if TYPE_CHECKING:
    from models.pretrained.installed import InstalledCaptioners, ModelFacts, PretrainedCard

captioners = typer.Typer(no_args_is_help=True)
Name = Annotated[str, typer.Argument(metavar="NAME", help="As captioners list has it.", show_default=False)]
COLUMNS = ("name", "family", "from", "on disk", "in memory", "licence")


def _open() -> "InstalledCaptioners":
    from app.pipeline.installed_captioners import pretrained_captioners

    return pretrained_captioners(settings_with())


@captioners.command()
def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="ID_OR_FOLDER",
            help="OWNER/NAME or OWNER/NAME@REVISION of a model hub, or a folder in its format.",
            show_default=False,
        ),
    ],
    name: Annotated[
        str | None, typer.Option(help="What it is called here; default: the last part, in lower case.")
    ] = None,
) -> None:
    """Bring a captioner here, once it has captioned a frame; a download that broke off goes on."""

    card = _open().add(source, try_captioner, name=name, offline=settings_with().offline)
    say(f"{card.name}: {describe(card)}")
    say("A service that runs has it once it is restarted; caption --local has it now.")


@captioners.command("list")
def show(as_json: AsJson = False) -> None:
    """List installed captioners with their source, size, memory and licence."""
    cards = _open().list()
    if as_json:
        print(json.dumps([card.model_dump(mode="json") for card in cards]))
    elif cards:
        print_table(COLUMNS, [_row(card) for card in cards])
    else:
        say("No pretrained captioner is installed: reelword captioners add OWNER/NAME brings one.")


@captioners.command()
def remove(name: Name) -> None:
    """Delete an installed captioner from the disk."""
    _open().remove(name)
    print(printable(f"{name} is removed."))


@captioners.command()
def push(
    name: Annotated[
        str,
        typer.Argument(
            metavar="CHECKPOINT", help="Its name or file; or an installed adapter's.", show_default=False
        ),
    ],
    repository: Annotated[
        str, typer.Argument(metavar="OWNER/NAME", help="Of a model hub.", show_default=False)
    ],
    licence: Annotated[
        str | None, typer.Option(help="Of the weights, as hubs name it; default: its card's.")
    ] = None,
) -> None:
    """Publish a captioner that was trained here, with its card; captioners add brings it elsewhere."""
    from huggingface_hub import ModelCard

    from models.checkpoint import find_checkpoint
    from models.pretrained.hub import CARD, upload

    files = _list_adapter(name) or _list_checkpoint(find_checkpoint(name, settings_with().weights))
    readme = files.pop(CARD)
    card = ModelCard(readme.decode() if isinstance(readme, bytes) else readme.read_text("utf-8"))
    card.data["license"] = licence or card.data.get("license")
    say(f"{name} is at {repository}@{upload({**files, CARD: str(card).encode()}, repository)}.")


@captioners.command()
def verify(
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]", show_default=False)] = None,
) -> None:
    """Check every byte of the captioners that are named, or of all."""
    folder = _open()
    chosen = names or [card.name for card in folder.list()]
    if failed := each_card(chosen, folder.verify):
        raise typer.Exit(failed)


def try_captioner(folder: Path) -> "ModelFacts":
    """Reads what a folder holds, and captions a frame with it. Raises PretrainedError: it cannot."""
    from models.pretrained.folder import read_pretrained_info
    from models.pretrained.installed import ModelFacts
    from models.pretrained.load import try_pretrained_captioner

    if (folder / CHECKPOINT).is_file():
        return _read_checkpoint(folder)
    info = read_pretrained_info(folder)
    try_pretrained_captioner(info)
    return ModelFacts(
        family=info.family,
        architecture=info.architecture,
        parameters=info.parameters,
        memory=info.memory(),
        licence=info.licence or "",
    )


def _read_checkpoint(folder: Path) -> "ModelFacts":
    """Reads what one of Reelword's own is. Raises CheckpointError: it is damaged."""
    from models.checkpoint import count_parameters, load_checkpoint
    from models.pretrained.folder import make_facts

    path = folder / CHECKPOINT
    return make_facts(folder, "reelword", load_checkpoint(path).card.captioner, count_parameters(path))


def describe(card: "PretrainedCard") -> str:
    """Writes one line: what it is, what it costs, and which revision it is."""
    at = "" if card.revision is None else f" at {card.revision[:12]}"
    licence = card.facts.licence or "no licence named"
    return (
        f"{card.facts.architecture}, {card.facts.parameters / 1e6:.0f} million parameters, "
        f"{_size(card.size)} on disk, about {_size(card.facts.memory)} in memory, {licence}; "
        f"{card.source}{at}, sha256 {card.weights_sha256[:12]}…"
    )


def each_card(names: Sequence[str], work: "Callable[[str], PretrainedCard]") -> int:
    """Does the work for each, also where it fails for others. Returns the exit code."""
    failed = 0
    for name in names:
        try:
            print(printable(f"{name}: {describe(work(name))}"), flush=True)
        except ReelwordError as error:
            complain(f"{name}: {error.advice} [{error.code}]")
            failed = 1
    return failed


def _row(card: "PretrainedCard") -> tuple[str, ...]:
    at = "" if card.revision is None else f"@{card.revision[:8]}"
    licence = card.facts.licence or "?"
    sizes = (_size(card.size), _size(card.facts.memory))
    return card.name, card.facts.family, f"{card.source}{at}", *sizes, licence


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _list_adapter(name: str) -> "dict[str, Path | bytes]":
    """Lists what an installed adapter is made of; nothing where no pretrained captioner has the name."""
    from models.pretrained.hub import CARD
    from models.pretrained.installed import CARD as FACTS

    installed = _open()
    if name not in (card.name for card in installed.list()):
        return {}
    card, folder = installed.verify(name), installed.path(name)
    if card.base is None:
        raise UsageError(f"{name} came from {card.source} as it is: what was trained here is pushed.")
    return {each: folder / each for each in (*card.files, FACTS, CARD)}


def _list_checkpoint(path: Path) -> "dict[str, Path | bytes]":
    """Lists a checkpoint and the text beside it, or one of what the file says of itself."""
    from models.checkpoint import read_card
    from models.pretrained.hub import CARD

    text = path.with_suffix(".md")
    if text.is_file():
        return {CHECKPOINT: path, CARD: text}
    card = read_card(path)
    training = {name: each for name, each in card.training.items() if name != "ids"}
    facts = json.dumps({"scores": card.scores, "training": training}, indent=1)
    title = f"# {path.stem}\n\nA captioner of Reelword, {card.captioner}:"
    about = f"---\nlibrary_name: reelword\n---\n\n{title}\n\n```json\n{facts}\n```\n"
    return {CHECKPOINT: path, CARD: about.encode()}
