"""Declares options that ``train`` and ``evaluate`` share; names the option that mends an error."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from extractors.errors import ReelwordError
from training.recipes.train_options import PrecisionName

if TYPE_CHECKING:
    from training.saved_features.feature_folder import FeatureFolder

#: Option → names of the errors that it can mend, since their modules take seconds to import; "" where the
#: error names what is to be changed.
Mendable = Mapping[str, tuple[str, ...]]
DataSetName = Annotated[
    str | None,
    typer.Option(help="The captioned set that the folder holds: msvd, msrvtt: see docs/data.md."),
]
Paper = Annotated[str | None, typer.Option(help="Whose splits and words the set has; see data check.")]
Cache = Annotated[Path, typer.Option(help="Where features are kept between runs.")]
Threads = Annotated[
    int | None,
    typer.Option(min=1, help="CPU threads; default: OMP_NUM_THREADS, or as many as there are cores."),
]
Device = Annotated[
    str, typer.Option(help="What computes: auto takes a GPU where there is one; cpu, cuda, cuda:1 …")
]


@dataclass(frozen=True)
class SavedFeatureOptions:
    """Names features that were made before."""

    features: Annotated[
        Path | None,
        typer.Option(
            help="Folder of features that extract or others made; see docs/data.md, Saved features."
        ),
    ] = None
    feature_map: Annotated[
        Path | None, typer.Option(help="What names --features; default: its features.yaml.")
    ] = None

    def open(self) -> "FeatureFolder | None":
        """Returns the folder, None where none is named. Raises BadParameter."""
        if self.features is None and self.feature_map is not None:
            raise typer.BadParameter("--feature-map says what lies in --features, which is not given")
        if self.features is None:
            return None
        check_folder("--features", self.features)
        from training.saved_features.feature_folder import FeatureFolder

        return FeatureFolder(self.features, self.feature_map)


@dataclass(frozen=True)
class RunOptions:
    """Says where a run computes and what it writes down: nothing that changes what it learns."""

    cache: Cache = Path("data/cache")
    threads: Threads = None
    device: Device = "auto"
    precision: Annotated[
        PrecisionName,
        typer.Option(help="What networks compute in; auto: bf16 where the device has it, and TF32."),
    ] = "auto"
    save_every: Annotated[
        float, typer.Option(min=0.0, help="Minutes after which the state is saved between validations.")
    ] = 5.0
    log_every: Annotated[int, typer.Option(min=1, help="Steps whose means are a row of log.csv.")] = 20
    keep: Annotated[
        int, typer.Option(min=1, help="Best checkpoints that are kept, further ones in top/.")
    ] = 1
    track: Annotated[
        Literal["tensorboard", "wandb"] | None, typer.Option(help="Show the log there too; see docs.")
    ] = None


def check_folder(option: str, folder: Path) -> None:
    """Refuses a folder that is not there, before anything is loaded. Raises BadParameter."""
    if not folder.is_dir():
        raise typer.BadParameter(f"{option}: there is no folder {folder}")


@contextmanager
def name_option(mendable: Mendable) -> Iterator[None]:
    """Turns an error into one that names the option which can mend it. Raises BadParameter."""
    try:
        yield
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        option = next((option for option, names in mendable.items() if kinds.intersection(names)), None)
        if option is None:
            raise
        text = str(error)
        if isinstance(error, ReelwordError) and text.endswith("."):  # a sentence, with another to follow
            text = error.advice
        raise typer.BadParameter(f"{option}: {text}" if option else text) from error
