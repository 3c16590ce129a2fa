"""``reelword data``: says what of a captioned set is there, and what is missing."""

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.model_options import AsJson
from app.terminal import print_table, say

if TYPE_CHECKING:
    from training.datasets.check import SetCheck

LISTED = 10  #: as many unreadable files as are listed; all of them are in the JSON

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
    from extractors.decoder.decoder import Decoder
    from training.datasets.check import check_data_set, make_deep_probe, probe_header
    from training.datasets.errors import DataSetError
    from training.datasets.registry import find_data_set

    try:
        with Decoder() if probe == "deep" else nullcontext() as decoder:
            shallow = probe_header if probe == "header" else None
            look = shallow if decoder is None else make_deep_probe(decoder)
            report = check_data_set(find_data_set(name), root, paper, look)
    except DataSetError as error:
        typer.echo(error.advice, err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        _print(report)
    raise typer.Exit(0 if report.complete else 1)


def _print(check: "SetCheck") -> None:
    annotations = [
        (" or ".join(each.names), each.what, _tell_place(each.path, is_needed=each.needed))
        for each in check.annotations
    ]
    print_table(("annotation file", "holds", "found"), annotations)
    if check.splits:
        counts = [
            (each.split, each.annotated, each.expected, each.found, each.unreadable, each.captions)
            for each in check.splits
        ]
        columns = ("split", "annotated", "expected", "files found", "unreadable", "captions")
        print_table(columns, [(split, *map(_tell_number, numbers)) for split, *numbers in counts])
        printed = f" (the paper's: {check.printed:,})" if check.printed else ""
        say(f"words of the vocabulary: {check.words:,}{printed}; {check.rule}, as {check.paper} has it")
    for each in check.unreadable[:LISTED]:
        say(f"unreadable: {each.path}: {each.message}")
    if len(check.unreadable) > LISTED:
        say(f"… and {len(check.unreadable) - LISTED} more; --json lists all")
    for notice in check.notices:
        say(f"note: {notice.message}")
    if check.error is not None:
        say(check.error)
    for sentence in check.missing:
        say(f"missing: {sentence}")
    say("everything is there" if check.complete else check.obtain)


def _tell_place(path: Path | None, *, is_needed: bool) -> str:
    return str(path) if path is not None else "no" if is_needed else "no (not needed)"


def _tell_number(number: int | None) -> str:
    return "" if number is None else f"{number:,}"
