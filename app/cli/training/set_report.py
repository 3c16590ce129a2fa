"""Prints whether a captioned set is all there, and what is missing: ``reelword data check``."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from extractors.decoder.decoder import Decoder
from training.datasets.check import (
    FoundAnnotation,
    Probe,
    SetCheck,
    SplitCount,
    check_data_set,
    make_deep_probe,
    probe_header,
)
from training.datasets.registry import find_data_set

Depth = Literal["none", "header", "deep"]
LISTED = 10  #: as many unreadable files as are listed; all of them are in the JSON


def report_set(name: str, root: Path, paper: str | None, depth: Depth, *, as_json: bool) -> bool:
    """Prints what of a captioned set is there, and returns whether all is needed. Raises DataSetError.

    Args:
        paper: whose splits and words.
        depth: how closely videos are looked at.
    """
    with _open_probe(depth) as probe:
        report = check_data_set(find_data_set(name), root, paper, probe)
    if as_json:
        typer.echo(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        _print(report)
    return report.complete


@contextmanager
def _open_probe(depth: Depth) -> Iterator[Probe | None]:
    if depth != "deep":
        yield probe_header if depth == "header" else None
        return
    with Decoder() as decoder:
        yield make_deep_probe(decoder)


def _print(check: SetCheck) -> None:
    console = Console()
    console.print(_make_annotation_table(check.annotations))
    if check.splits:
        console.print(_make_split_table(check.splits))
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


def _make_annotation_table(found: tuple[FoundAnnotation, ...]) -> Table:
    table = Table("annotation file", "holds", Column("found", overflow="fold"))
    for each in found:
        absent = "no" if each.needed else "no (not needed)"
        table.add_row(
            escape(" or ".join(each.names)),
            each.what,
            absent if each.path is None else escape(str(each.path)),
        )
    return table


def _make_split_table(splits: tuple[SplitCount, ...]) -> Table:
    table = Table("split", "annotated", "expected", "files found", "unreadable", "captions")
    for each in splits:
        numbers = (each.annotated, each.expected, each.found, each.unreadable, each.captions)
        table.add_row(each.split, *("" if number is None else f"{number:,}" for number in numbers))
    return table
