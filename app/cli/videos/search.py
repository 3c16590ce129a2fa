"""Declares ``reelword search``, which finds the moments of films that fit some words best."""

from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import FieldsOf, settings_with
from app.cli.videos.video_options import SearchRequest
from app.errors import UsageError
from app.extract.inputs import find_videos


def search(
    request: Annotated[SearchRequest, FieldsOf()],
    films: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILM…]", help="Films, and folders of them.", show_default=False),
    ] = None,
    jobs: Annotated[bool, typer.Option("--jobs", help="Search the captions of the service's jobs.")] = False,
) -> None:
    """Find moments that fit some words, in films, which are captioned at their first search, or in jobs."""
    if jobs == bool(films):
        raise UsageError("Name films and folders to search, or --jobs.")
    inputs = find_videos(films, None) if films else []  # what is missing is said before models load
    from app.cli.videos.film_search import search_films, show_jobs

    if jobs:
        show_jobs(request, settings_with())
        return
    raise typer.Exit(1 if search_films(inputs, request, settings_with()) else 0)
