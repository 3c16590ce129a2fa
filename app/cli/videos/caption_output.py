"""Declares how films are cut for ``caption``, and what it prints and writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class FilmCut:
    """Says how films are cut into segments."""

    segments: Annotated[
        str | None,
        typer.Option(
            help="Caption segments: shots, none, or seconds; default: shots of films over a minute."
        ),
    ] = None
    shortest: Annotated[float, typer.Option(help="Seconds of a segment, at least.")] = 2.0
    longest: Annotated[float, typer.Option(help="Seconds after which a shot is cut.")] = 20.0

    @property
    def here_alone(self) -> list[str]:
        """Names the options that were given and that a service does not have."""
        usual = FilmCut()
        return [
            f"--{name}" for name in ("shortest", "longest") if getattr(self, name) != getattr(usual, name)
        ]


@dataclass(frozen=True)
class CaptionOutput:
    """Says where captions go, and in which form."""

    as_json: Annotated[bool, typer.Option("--json", help="A line of JSON for each file.")] = False
    attention: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write <name>.png and <name>.json there, for each file."),
    ] = None
    form: Annotated[str | None, typer.Option("--format", help="Write segments as vtt, srt, csv or json.")] = (
        None
    )
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder for these files; default: standard output.")
    ] = None
