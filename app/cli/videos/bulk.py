"""Declares the options of ``reelword bulk``; app/bulk/ does it."""

from typing import Annotated

import typer

from app.cli.model_options import FieldsOf, settings_with
from app.jobs.options import CaptionOptions


def bulk(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="A folder, a .txt with a video a line, or s3://…", show_default=False
        ),
    ],
    out: Annotated[
        str, typer.Option(metavar="DIR", help="Folder of parquet files, as captions.parquet or s3://….")
    ],
    options: Annotated[
        CaptionOptions,
        FieldsOf(
            "How captions are written",
            ("captioner", "members"),
            leave_out=("attention", "segments", "explanation"),
        ),
    ],
    address: Annotated[
        str | None,
        typer.Option(help="Of a Ray cluster, or auto; default: RAY_ADDRESS, or Ray is started here."),
    ] = None,
    decoders: Annotated[int | None, typer.Option(min=1, help="Actors that read videos.")] = None,
    engines: Annotated[
        int | None, typer.Option(min=1, help="Actors that caption; default: one a GPU.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=64, help="Videos captioned together.")] = 8,
) -> None:
    """Caption a collection into parquet, on this machine or a Ray cluster; goes on where it was stopped."""
    from app.extract.inputs import list_videos

    videos = list_videos(source)  # before Ray is loaded, which takes seconds
    from app.bulk.caption_collection import Fleet, caption_collection

    fleet = Fleet(address, decoders, engines, batch)
    options = options.model_copy(update={"attention": False})
    failed = caption_collection(videos, out, options, settings_with(), fleet)
    raise typer.Exit(1 if failed else 0)
