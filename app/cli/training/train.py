"""Declares ``reelword train``: options, and errors by the option to change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import FieldsOf
from app.cli.training.shared_options import (
    Cache,
    Device,
    Mendable,
    SavedFeatureOptions,
    check_folder,
    name_option,
)
from training.recipes.train_options import NeedsVideo, StartMissing, TrainOptions, UnreadOption

if TYPE_CHECKING:
    from training.sessions.session_choice import PictureSession


def check_name(captioner: str) -> str:
    """Returns the name of a captioner or of the embedding; refuses others before anything else is asked."""
    from extractors.pretrained.weights_folder import WeightsFolder
    from models.captioners.registry import UnknownCaptioner, captioner_class
    from models.pretrained.installed import InstalledCaptioners
    from training.sessions.session_choice import EMBEDDING

    try:
        if captioner != EMBEDDING:
            captioner_class(captioner)
    except UnknownCaptioner as error:
        installed = InstalledCaptioners(WeightsFolder.of(None).data / "captioners").list()
        if captioner not in (names := [card.name for card in installed]):
            raise typer.BadParameter(", ".join((str(error), EMBEDDING, *names))) from error
    return captioner


def make_train(on_pictures: PictureSession | None = None) -> Callable[..., None]:
    """Makes the command. on_pictures: trains on archives of pictures; the laboratory's has it alone."""

    def train(
        captioner: Annotated[
            str,
            typer.Argument(help="A captioner of a folder in models/captioners.", show_default=False),
        ],
        data: Annotated[
            Path,
            typer.Option(
                help="Folder of a captioned set, or of your own videos (docs/data.md); in the laboratory "
                "of the archives that docs/training.md lists."
            ),
        ],
        options: Annotated[TrainOptions, FieldsOf(leave_out=("features",))],
        saved: Annotated[SavedFeatureOptions, FieldsOf()],
        recipe: Annotated[
            str | None,
            typer.Option(help="How it is trained; default: its demo. As in its paper: paper-msvd …"),
        ] = None,
        out: Annotated[
            Path | None,
            typer.Option(
                help="The run's folder; a run that was stopped goes on from it. Default: runs/CAPTIONER"
            ),
        ] = None,
        cache: Cache = Path("data/cache"),
        threads: Annotated[int, typer.Option(help="CPU threads.")] = 2,
        device: Device = "auto",
        seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    ) -> None:
        """Trains a captioner; writes best.safetensors, log.csv and last.pt into --out."""
        check_folder("--data", data)
        features = saved.open()
        options = options.model_copy(update={"features": saved.features})
        check_name(captioner)
        from training.optimization.processes import join_processes
        from training.optimization.run_folder import RunSettings
        from training.sessions import session_choice

        with name_option(_mendable(options)), join_processes(device) as (processes, opened):
            notify = typer.echo if processes.is_first else _say_nothing
            folder = out or Path("runs", captioner)
            settings = RunSettings(folder, cache, notify, threads, opened, processes, features)
            best = session_choice.train(captioner, recipe, seed, data, options, settings, on_pictures)
            notify(f"best checkpoint: {best}")

    return train


def _say_nothing(_: str) -> None:
    """Stands in the place of what the first process says for all."""


def _mendable(options: TrainOptions) -> Mendable:
    from extractors.engines.engine_choice import DeviceUnavailable
    from extractors.pretrained.errors import WeightsError
    from models.captioners.registry import UnknownCaptioner, UnknownStreamSet
    from models.checkpoint import CheckpointError
    from models.feature_sources.stream_checks import StreamMismatch
    from models.stream_choice import StreamsDoNotFit
    from models.stream_set import UnknownStream
    from training.batches.archives import CorpusError
    from training.datasets.errors import DataSetError
    from training.optimization.processes import NotShared
    from training.optimization.rewards import NoReward
    from training.recipes.demo_recipes import UnknownRecipe
    from training.saved_features.feature_map import FeatureMapDamaged, FeaturesDoNotFit
    from training.sessions.session_choice import NeedsDataSet

    return {
        "": (UnreadOption, StartMissing, NotShared, NeedsDataSet),
        "--device": (DeviceUnavailable,),
        "--recipe": (UnknownRecipe, NoReward),
        "--streams": (UnknownStream, UnknownStreamSet, StreamsDoNotFit, NeedsVideo),
        "--features": (FeatureMapDamaged, FeaturesDoNotFit, ImportError),
        "--teacher" if options.teachers else "--start": (
            UnknownCaptioner, StreamMismatch, CheckpointError, WeightsError,
        ),
        "--data": (FileNotFoundError, CorpusError, DataSetError),
    }  # fmt: skip


train = make_train()
