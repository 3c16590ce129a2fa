"""Finds the moments of films that fit some words best: ``reelword search``."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import AsJson, settings_with
from app.errors import UsageError
from app.extract.inputs import find_videos


def search(
    words: Annotated[
        str, typer.Argument(help="What is looked for, as a caption would say it.", show_default=False)
    ],
    films: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILM…]", help="Films, and folders of them.", show_default=False),
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Search the captions of the service's jobs.")] = False,
    count: Annotated[int, typer.Option(min=1, help="Moments that are shown, at most.")] = 12,
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Write a page of the moments' pictures.")
    ] = None,
    segments: Annotated[str, typer.Option(help="How films are cut: shots, none, auto or seconds.")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Find moments that fit some words, in films, which are captioned at their first search, or in jobs."""
    if jobs == bool(films):
        raise UsageError("Name films and folders to search, or --jobs.")
    if films:
        find_videos(films, None)  # what is missing is said before models load
    from app.search.search_films import SearchRequest, search_films, show_jobs

    request = SearchRequest(words, count, segments, sheet, as_json)
    if jobs:
        show_jobs(request, settings_with())
        return
    raise typer.Exit(1 if search_films(films or [], request, settings_with()) else 0)
