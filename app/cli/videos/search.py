"""Declares ``reelword search``, which finds the moments of films that fit some words best."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import AsJson, FieldsOf, settings_with
from app.errors import UsageError
from app.extract.inputs import find_videos


@dataclass(frozen=True)
class SearchRequest:
    """Holds what is searched for, and how the answer is shown."""

    words: Annotated[
        str, typer.Argument(help="What is looked for, as a caption would say it.", show_default=False)
    ]
    count: Annotated[int, typer.Option(min=1, help="Moments that are shown, at most.")] = 12
    sheet: Annotated[
        Path | None, typer.Option(metavar="FILE.png", help="Write a page of the moments' pictures.")
    ] = None
    segments: Annotated[str, typer.Option(help="How films are cut: shots, none, auto or seconds.")] = "auto"
    as_json: AsJson = False

    def __post_init__(self) -> None:
        if not self.words.strip():
            raise UsageError("There are no words to look for.")


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
