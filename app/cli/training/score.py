"""Declares ``reelword score``: captions in files, references in files, no captioner."""

import json
from pathlib import Path
from typing import Annotated

import typer

from app.cli.model_options import AsJson
from app.cli.training import shared_options as shared

MENDABLE: shared.Mendable = {
    "": ("DataSetError",),
    "--device": ("DeviceUnavailable",),
    "--clip": ("PretrainedError", "ImportError"),
}


def score(
    captions: Annotated[
        Path, typer.Argument(metavar="FILE", help="One caption of each item; docs/training.md has the forms.")
    ],
    references: Annotated[
        Path, typer.Option(help="What people wrote of the items: a file, or a captioned set's folder.")
    ],
    data_set: shared.DataSetName = None,
    against: Annotated[
        Path | None, typer.Option(help="Another file of captions, compared by a paired bootstrap.")
    ] = None,
    training: Annotated[
        Path | None, typer.Option(help="Captions that were trained on: says how many of FILE's are new.")
    ] = None,
    clip: Annotated[
        Path | None, typer.Option(help="Folder of a CLIP model: adds CLIPScore and RefCLIPScore of --videos.")
    ] = None,
    videos: Annotated[
        Path | None, typer.Option(help="Folder of the videos, which are called as the items are.")
    ] = None,
    frames: Annotated[int, typer.Option(min=1, help="Frames of each video that CLIP sees.")] = 8,
    device: shared.Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Scores a file of captions against references, with bootstrap intervals."""
    if (clip is None) != (videos is None):
        raise typer.BadParameter("--clip and --videos belong together: CLIP looks at the videos")
    for option, folder in (("--clip", clip), ("--videos", videos)):
        if folder is not None:
            shared.check_folder(option, folder)
    from extractors.engines.engine_choice import open_device
    from training.evaluation.score_files import ClipSource, score_files

    with shared.name_option(MENDABLE):
        source = None
        if clip is not None and videos is not None:
            source = ClipSource(clip, videos, frames, open_device(device))
        result = score_files(captions, references, against, training, source, data_set)
    if as_json:
        typer.echo(json.dumps(result.to_json()))
    else:
        result.print()
