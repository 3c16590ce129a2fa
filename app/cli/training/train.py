"""Declares ``reelword train``: options, and errors by the option to change."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.model_options import FieldsOf
from app.cli.training.shared_options import (
    Mendable,
    RunOptions,
    SavedFeatureOptions,
    check_folder,
    name_option,
)
from app.terminal import complain
from training.recipes.train_options import NeedsVideo, StartMissing, TrainOptions, UnreadOption

if TYPE_CHECKING:
    from training.optimization.run_folder import RunSettings
    from training.sessions.session_choice import PictureSession


def check_name(captioner: str) -> str:
    """Returns the name of a captioner or of the embedding; refuses others before anything else is asked."""
    from models.captioners.registry import UnknownCaptioner, captioner_class
    from training.sessions.session_choice import EMBEDDING

    try:
        if captioner != EMBEDDING:
            captioner_class(captioner)
    except UnknownCaptioner as error:
        raise typer.BadParameter(f"{error}, {EMBEDDING}") from error
    return captioner


CaptionerName = Annotated[
    str, typer.Argument(help="A captioner of a folder in models/captioners.", show_default=False)
]
DataFolder = Annotated[
    Path,
    typer.Option(
        help="Folder of a captioned set, or of your own videos (docs/data.md); in the laboratory "
        "of the archives that docs/training.md lists."
    ),
]
RecipeName = Annotated[
    str | None,
    typer.Option(help="How it is trained: demo, finetune, as in its paper: paper-msvd …, FILE.toml."),
]


@dataclass(frozen=True, eq=False)
class TrainedRuns:
    """What runs of one command share."""

    captioner: str
    data: Path
    recipe: str | None
    options: TrainOptions
    settings: RunSettings
    on_pictures: PictureSession | None = None

    @classmethod
    @contextmanager
    def open(
        cls,
        captioner: str,
        data: Path,
        recipe: str | None,
        options: TrainOptions,
        saved: SavedFeatureOptions,
        run: RunOptions,
        on_pictures: PictureSession | None = None,
    ) -> Iterator[TrainedRuns]:
        """Checks what was typed, and joins the processes that train; names the option that mends an error.

        Raises BadParameter, and Exit once a signal has ended a run.
        """
        check_folder("--data", data)
        features = saved.open()
        options = options.model_copy(update={"features": saved.features})
        check_name(captioner)
        from training.optimization.processes import join_processes
        from training.optimization.run_folder import RunSettings
        from training.runs.stopping import Stopped

        try:
            with name_option(_mendable(options)), join_processes(run.device) as (processes, device):
                settings = RunSettings(
                    out=Path("runs"),
                    cache=run.cache,
                    notify=typer.echo if processes.is_first else _say_nothing,
                    threads=run.threads,
                    device=device,
                    processes=processes,
                    features=features,
                    log_every=run.log_every,
                    save_every=60 * run.save_every,
                    keep=run.keep,
                    track=run.track,
                )
                yield cls(captioner, data, recipe, options, settings, on_pictures)
        except Stopped as error:
            complain(error.advice)
            raise typer.Exit(error.exit_code) from error
        except KeyboardInterrupt as error:
            complain("Stopped; the same command goes on from the last saved state.")
            raise typer.Exit(130) from error

    def train(self, folder: Path, seed: int | None) -> Path:
        """Trains in a folder; returns the best checkpoint. Raises what the session raises."""
        from training.sessions import session_choice

        settings = replace(self.settings, out=folder)
        return session_choice.train(
            self.captioner, self.recipe, seed, self.data, self.options, settings, self.on_pictures
        )


def make_train(on_pictures: PictureSession | None = None) -> Callable[..., None]:
    """Makes the command. on_pictures: trains on archives of pictures; the laboratory's has it alone."""

    def train(
        captioner: CaptionerName,
        data: DataFolder,
        options: Annotated[TrainOptions, FieldsOf(leave_out=("features",))],
        saved: Annotated[SavedFeatureOptions, FieldsOf()],
        run: Annotated[RunOptions, FieldsOf()],
        recipe: RecipeName = None,
        out: Annotated[
            Path | None,
            typer.Option(
                help="The run's folder; one that was stopped goes on from it. Default: runs/CAPTIONER-RECIPE"
            ),
        ] = None,
        seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    ) -> None:
        """Trains a captioner; writes best.safetensors, run.json, log.csv and last.pt into --out."""
        with TrainedRuns.open(captioner, data, recipe, options, saved, run, on_pictures) as runs:
            folder = out or name_run(captioner, recipe, seed, options)
            runs.settings.notify(f"best checkpoint: {runs.train(folder, seed)}")

    return train


def name_run(captioner: str, recipe: str | None, seed: int | None, options: TrainOptions) -> Path:
    """Names a run's folder by its recipe, and by a digest of what else was asked for."""
    asked = options.model_dump_json(exclude_none=True)
    parts = [captioner, Path(recipe or "demo").stem, "" if seed is None else f"seed{seed}"]
    parts += [] if asked == "{}" else [hashlib.sha256(asked.encode()).hexdigest()[:6]]
    return Path("runs", "-".join(filter(None, parts)))


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
    from training.batches.video_batches import NoFeatures
    from training.datasets.errors import DataSetError
    from training.optimization.processes import NotShared
    from training.optimization.rewards import NoReward
    from training.recipes.changes import FieldRefused, RecipeFileDamaged, UnknownField
    from training.recipes.demo_recipes import UnknownRecipe
    from training.runs.run_record import RunDiffers
    from training.runs.tracking import TrackerMissing
    from training.saved_features.feature_map import FeatureMapDamaged, FeaturesDoNotFit
    from training.sessions.session_choice import NeedsDataSet

    return {
        "": (UnreadOption, StartMissing, NotShared, NeedsDataSet),
        "--out": (RunDiffers,),
        "--device": (DeviceUnavailable,),
        "--recipe": (UnknownRecipe, NoReward, RecipeFileDamaged),
        "--track": (TrackerMissing,),
        "--set": (UnknownField, FieldRefused),
        "--streams": (UnknownStream, UnknownStreamSet, StreamsDoNotFit, NeedsVideo),
        "--features": (FeatureMapDamaged, FeaturesDoNotFit, NoFeatures, ImportError),
        "--teacher" if options.teachers else "--start": (
            UnknownCaptioner, StreamMismatch, CheckpointError, WeightsError,
        ),
        "--data": (FileNotFoundError, CorpusError, DataSetError),
    }  # fmt: skip


train = make_train()
