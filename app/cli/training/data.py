"""``reelword data check``: whether a captioned set is all there, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.model_options import AsJson
from app.terminal import print_table

if TYPE_CHECKING:
    from training.datasets.check import FoundAnnotation, Probe, SetCheck, SplitCount

Depth = Literal["none", "header", "deep"]
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
        Depth,
        typer.Option(help="Look for files alone, open each one's header, or decode frames of each."),
    ] = "header",
    as_json: AsJson = False,
) -> None:
    """Say what of a set is there and how to get the rest; exit status 1 where anything needed is missing."""
    from training.datasets.check import check_data_set
    from training.datasets.errors import DataSetError
    from training.datasets.registry import find_data_set

    try:
        with _open_probe(probe) as opened:
            report = check_data_set(find_data_set(name), root, paper, opened)
    except DataSetError as error:
        typer.echo(error.advice, err=True)
        raise typer.Exit(2) from error
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        _print(report)
    raise typer.Exit(0 if report.complete else 1)


@contextmanager
def _open_probe(depth: Depth) -> Iterator[Probe | None]:
    from extractors.decoder.decoder import Decoder
    from training.datasets.check import make_deep_probe, probe_header

    if depth != "deep":
        yield probe_header if depth == "header" else None
        return
    with Decoder() as decoder:
        yield make_deep_probe(decoder)


def _print(check: SetCheck) -> None:
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    print_table(
        ("annotation file", "holds", "found"),
        [_format_annotation(each) for each in check.annotations],
        console,
    )
    if check.splits:
        columns = ("split", "annotated", "expected", "files found", "unreadable", "captions")
        print_table(columns, [_format_split(each) for each in check.splits], console)
        printed = f" (the paper's: {check.printed:,})" if check.printed else ""
        line = f"words of the vocabulary: {check.words:,}{printed}; {check.rule}, as {check.paper} has it"
        console.print(line, highlight=False)
    for each in check.unreadable[:LISTED]:
        console.print(escape(f"unreadable: {each.path}: {each.message}"), soft_wrap=True)
    if len(check.unreadable) > LISTED:
        console.print(f"… and {len(check.unreadable) - LISTED} more; --json lists all")
    for notice in check.notices:
        console.print(escape(f"note: {notice.message}"), soft_wrap=True)
    if check.error is not None:
        console.print(escape(check.error), soft_wrap=True)
    for sentence in check.missing:
        console.print(escape(f"missing: {sentence}"), soft_wrap=True)
    console.print("everything is there" if check.complete else escape(check.obtain), soft_wrap=True)


def _format_annotation(annotation: FoundAnnotation) -> tuple[str, ...]:
    absent = "no" if annotation.needed else "no (not needed)"
    path = absent if annotation.path is None else str(annotation.path)
    return " or ".join(annotation.names), annotation.what, path


def _format_split(counts: SplitCount) -> tuple[str, ...]:
    numbers = (counts.annotated, counts.expected, counts.found, counts.unreadable, counts.captions)
    return counts.split, *("" if number is None else f"{number:,}" for number in numbers)
