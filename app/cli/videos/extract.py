"""Declares the options of ``reelword extract``; app/extract/ does it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.model_options import settings_with
from app.errors import UsageError, sentence
from app.terminal import complain

if TYPE_CHECKING:
    from extractors.windows import WindowOptions
    from models.stream_set import StreamSet

FormName = Literal["safetensors", "npy", "hdf5"]
Choice = Literal["published", "seeded"]
Precision = Literal["fp32", "bf16", "fp16"]
INTERRUPTED = 130  #: what shells say of a command that Ctrl-C ended


def extract(
    videos: Annotated[
        list[str],
        typer.Argument(
            metavar="VIDEO…", help="Files, folders, lists (.txt), https://…, s3://….", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where <extractor>/<video>… is written.")],
    extractor: Annotated[str | None, typer.Option(help="Extractors, with commas between them.")] = None,
    streams: Annotated[
        str | None,
        typer.Option(
            help="In their place a stream set: its extractors, each with its windows; models --sets."
        ),
    ] = None,
    stack_size: Annotated[int | None, typer.Option(help="Frames of a window.")] = None,
    step_size: Annotated[
        int | None, typer.Option(help="Frames from a window's first to the next one's.")
    ] = None,
    extraction_fps: Annotated[float | None, typer.Option(help="Frames a second to look at.")] = None,
    extraction_total: Annotated[
        int | None, typer.Option(help="Frames to look at, spread over the whole time.")
    ] = None,
    most: Annotated[
        int | None, typer.Option(help="Most windows of a video; longer videos have them further apart.")
    ] = None,
    form: Annotated[
        FormName, typer.Option("--format", help="npy, hdf5: by the public extractors' names.")
    ] = ("safetensors"),
    weights: Annotated[
        Choice, typer.Option(help="seeded: random ones, for tests; marks its output so.")
    ] = "published",
    show_predictions: Annotated[
        bool, typer.Option(help="Print the five likeliest classes, of networks that tell any.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, help="Videos extracted at the same time.")] = 1,
    device: Annotated[
        str | None, typer.Option(help="What computes: cpu, cuda, cuda:1 …; default: REELWORD_DEVICE.")
    ] = None,
    precision: Annotated[
        Precision | None, typer.Option(help="What networks compute in; default: the fastest there is.")
    ] = None,
) -> None:
    """Write features of videos to files, one decoding for all extractors; goes on where it was stopped."""
    from app.extract.inputs import find_inputs

    find_inputs(videos, out)  # what is missing is said before networks load
    from app.extract.extract_files import extract_files
    from app.extract.plan import ExtractionPlan
    from extractors.windows import WindowOptions

    configured = settings_with()
    try:
        windows = WindowOptions(stack_size, step_size, extraction_fps, extraction_total, most)
        stream_set = _find_stream_set(streams, extractor, windows)
        names = (extractor or "").split(",") if stream_set is None else stream_set.extractors
        plan = ExtractionPlan(
            extractors=tuple(dict.fromkeys(name.strip() for name in names if name.strip())),
            out=out,
            form=form,
            windows=windows,
            weights=weights,
            device=device or configured.device,
            precision=precision,
            predictions=show_predictions,
            settings=configured,
            streams=stream_set,
        )
        failed = extract_files(videos, plan, jobs)
    except ValueError as error:  # windows that cannot be
        raise UsageError(sentence(str(error))) from error
    except KeyboardInterrupt as error:
        complain("Stopped; the same command goes on from here.")
        raise typer.Exit(INTERRUPTED) from error
    raise typer.Exit(1 if failed else 0)


def _find_stream_set(name: str | None, extractor: str | None, windows: "WindowOptions") -> "StreamSet | None":
    """Finds the set that is asked for in the place of extractors. Raises UsageError."""
    if name is None:
        return None
    if extractor is not None or windows != type(windows)():
        raise UsageError(
            "--streams has extractors and windows of its own: leave out --extractor and windows."
        )
    from models.captioners.registry import UnknownStreamSet, find_stream_set

    try:
        return find_stream_set(name)
    except UnknownStreamSet as error:
        raise UsageError(f"--streams: {error}.") from error
