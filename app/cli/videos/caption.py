"""Declares ``reelword caption``: options, and who captions, a running server or this process."""

from typing import Annotated

import typer

from app.cli.model_options import FieldsOf, Streams, change_options, settings_with
from app.cli.server import ServerChoice
from app.cli.videos.video_options import CaptionOutput, FilmCut
from app.errors import UsageError
from app.extract.inputs import choose_names, find_inputs
from app.jobs.options import CaptionOptions

Videos = Annotated[
    list[str],
    typer.Argument(
        metavar="VIDEO…",
        help="Video files, folders, lists (.txt) of them, and addresses, which a service fetches.",
        show_default=False,
    ),
]


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
    # what is missing is said before models load
    videos = choose_names(find_inputs(files, output.attention or output.out))
    options = options.model_copy(update={"attention": output.has_words})
    settings = settings_with(streams=streams)
    server = service.find(settings, ["--streams"] * (streams is not None) + cut.here_alone)
    if server is not None:
        from app.cli.videos.server_captions import caption_by_server

        cut_there = cut.segments or ("none" if output.as_json or output.attention else None)
        options = change_options(options, segments=None if cut_there == "auto" else cut_there)
        raise typer.Exit(1 if caption_by_server(server, videos, options, output) else 0)
    if any(video.address for video in videos):
        raise UsageError(
            "A running service captions addresses, and none is asked: start one with make serve, or name one "
            "with --server."
        )
    from app.cli.videos.local_captions import caption_films, caption_whole

    work = caption_films if is_by_segments else caption_whole
    raise typer.Exit(1 if work(videos, options, cut, output, settings) else 0)
