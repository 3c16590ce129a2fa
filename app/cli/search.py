"""``python -m app search``: the moments of films that fit some words best, with times and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.errors import UsageError


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
    from app.cli.settings import exit_for_usage, load_settings
    from app.search.search_films import SearchRequest, search_films

    request = SearchRequest(words, count, segments, sheet, as_json)
    try:
        failed = search_films(films, request, load_settings())
    except UsageError as error:
        exit_for_usage(str(error))
    raise typer.Exit(1 if failed else 0)
