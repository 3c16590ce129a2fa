"""Finds the moments of films that fit some words best: ``python -m app search``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.settings import load_settings


def search(
    words: Annotated[
        str, typer.Argument(help="What is looked for, as a caption would say it.", show_default=False)
    ],
    films: Annotated[
        list[Path],
        typer.Argument(metavar="FILM…", help="Films, and folders of them.", show_default=False),
    ],
    count: Annotated[int, typer.Option(min=1, help="Moments that are shown, at most.")] = 12,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Write a page of the moments' pictures.")
    ] = None,
    segments: Annotated[
        str, typer.Option(help="How films are cut: shots, none, auto or a number of seconds.")
    ] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the moments of films that fit some words; films are captioned once, at their first search."""
    from app.search.search_films import SearchRequest, search_films

    request = SearchRequest(words, count, segments, sheet, as_json)
    raise typer.Exit(1 if search_films(films, request, load_settings()) else 0)
