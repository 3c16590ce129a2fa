"""Declares ``python -m app caption``: options, and who captions, a running server or this process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import FieldsOf, change_options
from app.cli.server import ServerChoice
from app.cli.streams import Streams, settings_with
from app.errors import UsageError
from app.extract.inputs import find_videos
from app.jobs.options import CaptionOptions

if TYPE_CHECKING:
    from app.settings import Settings

Videos = Annotated[
    list[Path],
    typer.Argument(metavar="VIDEO…", help="Video files, and folders of them.", show_default=False),
]


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


def caption(
    files: Videos,
    options: Annotated[
        CaptionOptions,
        FieldsOf("How captions are written", ("captioner", "members"), leave_out=("attention", "segments")),
    ],
    cut: Annotated[FilmCut, FieldsOf("How films are cut")],
    output: Annotated[CaptionOutput, FieldsOf("What is printed and written")],
    service: Annotated[ServerChoice, FieldsOf("Where it is done")],
    streams: Streams = None,
) -> None:
    """Captions video files and folders of them, by a running service or in this process."""
    is_by_segments = cut.segments not in (None, "none") or output.form is not None
    if is_by_segments and output.attention is not None:
        raise UsageError("--attention draws whole videos: leave out --segments and --format.")
    videos = find_videos(files, output.attention or output.out)  # what is missing is said before models load
    options = options.model_copy(update={"attention": output.attention is not None})
    settings = settings_with(streams)
    server = service.find(settings, ["--streams"] * (streams is not None) + cut.here_alone)
    if server is not None:
        from app.cli.server_captions import caption_by_server

        cut_there = cut.segments or ("none" if output.as_json or output.attention else None)
        options = change_options(options, segments=None if cut_there == "auto" else cut_there)
        raise typer.Exit(1 if caption_by_server(server, videos, options, output) else 0)
    work = _caption_by_segments if is_by_segments else _caption_whole
    raise typer.Exit(1 if work(files, options, cut, output, settings) else 0)


def _caption_whole(
    files: list[Path], options: CaptionOptions, cut: FilmCut, output: CaptionOutput, settings: Settings
) -> int:
    from app.cli.local_captions import caption_files
    from app.segments.cutting import segment_options

    is_followed = cut.segments is None and not output.as_json and output.attention is None
    segments = segment_options("auto", cut.shortest, cut.longest)
    return caption_files(
        files,
        options,
        settings,
        as_json=output.as_json,
        folder=output.attention,
        segments=segments if is_followed else None,
    )


def _caption_by_segments(
    files: list[Path], options: CaptionOptions, cut: FilmCut, output: CaptionOutput, settings: Settings
) -> int:
    from app.cli.segments import SegmentOutput, caption_by_segments
    from app.segments.cutting import segment_options

    segments = segment_options(cut.segments or "auto", cut.shortest, cut.longest)
    form = SegmentOutput(output.form, output.out, output.as_json)
    return caption_by_segments(files, options, segments, form, settings)
