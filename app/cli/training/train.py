"""Declares ``reelword train``: options, and errors by the option to change."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from app.cli.model_options import FieldsOf
from app.cli.training import shared_options as shared
from app.cores import choose_threads
from app.terminal import complain
from training.recipes.train_options import TrainOptions

if TYPE_CHECKING:
    from training.batches.video_batches import Notify
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


MENDABLE: shared.Mendable = {
    "": ("UnreadOption", "StartMissing", "NotShared", "NeedsDataSet"),
    "--out": ("RunDiffers",),
    "--device": ("DeviceUnavailable",),
    "--recipe": ("UnknownRecipe", "NoReward", "RecipeFileDamaged"),
    "--track": ("TrackerMissing",),
    "--set": ("NoSuchField", "FieldRefused"),
    "--streams": ("UnknownStream", "UnknownStreamSet", "StreamsDoNotFit", "NeedsVideo"),
    "--features": ("FeatureMapDamaged", "FeaturesDoNotFit", "NoFeatures", "ImportError"),
    "--start": ("UnknownCaptioner", "StreamMismatch", "CheckpointError", "WeightsError"),
    "--data": ("FileNotFoundError", "CorpusError", "DataSetError"),
}
#: From a run's folder, its seed and further changes (FIELD=VALUE) to its best checkpoint.
TrainRun: TypeAlias = Callable[[Path, int | None, Sequence[str]], Path]


@contextmanager
def open_training(
    captioner: str,
    data: Path,
    recipe: str | None,
    options: TrainOptions,
    saved: shared.SavedFeatureOptions,
    run: shared.RunOptions,
    on_pictures: "PictureSession | None" = None,
) -> "Iterator[tuple[Notify, TrainRun]]":
    """Checks what was typed and joins the processes that train; names the option that mends an error.

    Args:
        recipe: the name of a recipe or its file.
        options: what not every run reads.
        saved: features that were made before.
        on_pictures: trains on archives of pictures.

    Yields:
        What the user is told by, and what trains a run.

    Raises:
        BadParameter: something that was typed cannot be done.
        Exit: a signal has ended a run.
    """
    shared.check_folder("--data", data)
    features = saved.open()
    options = options.model_copy(update={"features": saved.features})
    check_name(captioner)
    from training.optimization.processes import join_processes
    from training.optimization.run_folder import RunSettings
    from training.runs.stopping import Stopped
    from training.sessions import session_choice

    mendable = {
        "--teacher" if option == "--start" and options.teachers else option: names
        for option, names in MENDABLE.items()
    }
    try:
        with shared.name_option(mendable), join_processes(run.device) as (processes, device):
            settings = RunSettings(
                out=Path("runs"),
                cache=run.cache,
                notify=typer.echo if processes.is_first else _say_nothing,
                threads=choose_threads(run.threads),
                device=device,
                processes=processes,
                features=features,
                log_every=run.log_every,
                save_every=60 * run.save_every,
                keep=run.keep,
                track=run.track,
                precision=run.precision,
            )

            def train(folder: Path, seed: int | None, changes: Sequence[str] = ()) -> Path:
                changed = options.model_copy(update={"changes": [*(options.changes or ()), *changes]})
                here = replace(settings, out=folder)
                return session_choice.train(captioner, recipe, seed, data, changed, here, on_pictures)

            yield settings.notify, train
    except Stopped as error:
        complain(error.advice)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as error:
        complain("Stopped; the same command goes on from the last saved state.")
        raise typer.Exit(130) from error


def make_train(on_pictures: "PictureSession | None" = None) -> Callable[..., None]:
    """Makes the command. on_pictures: trains on archives of pictures; the laboratory's has it alone."""

    def train(
        captioner: CaptionerName,
        data: DataFolder,
        options: Annotated[TrainOptions, FieldsOf(leave_out=("features",))],
        saved: Annotated[shared.SavedFeatureOptions, FieldsOf()],
        run: Annotated[shared.RunOptions, FieldsOf()],
        recipe: RecipeName = None,
        out: Annotated[
            Path | None,
            typer.Option(
                help="The run's folder; one that was stopped goes on from it. Default: runs/CAPTIONER-RECIPE."
            ),
        ] = None,
        seed: Annotated[int | None, typer.Option(help="Another seed than the recipe's.")] = None,
    ) -> None:
        """Trains a captioner; writes best.safetensors, run.json, log.csv and last.pt into --out."""
        with open_training(captioner, data, recipe, options, saved, run, on_pictures) as (notify, train_run):
            folder = out or _name_run(captioner, recipe, seed, options)
            notify(f"best checkpoint: {train_run(folder, seed, ())}")

    return train


def _name_run(captioner: str, recipe: str | None, seed: int | None, options: TrainOptions) -> Path:
    """Names a run's folder by its recipe, with a digest of what else was typed."""
    typed = options.model_dump_json(exclude_none=True)
    parts = [captioner, Path(recipe or "demo").stem, "" if seed is None else f"seed{seed}"]
    parts += [] if typed == "{}" else [hashlib.sha256(typed.encode()).hexdigest()[:6]]
    return Path("runs", "-".join(filter(None, parts)))


def _say_nothing(_: str) -> None:
    """Stands in the place of what the first process says for all."""


train = make_train()
