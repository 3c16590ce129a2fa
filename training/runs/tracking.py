"""Sends the numbers of a run's log to what shows them while it trains: TensorBoard, or Weights & Biases."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

from extractors.errors import ReelwordError

TrackerName = Literal["tensorboard", "wandb"]
#: Is given a phase, a step of it, and numbers by their names.
Tracker: TypeAlias = Callable[[str, int, Mapping[str, float]], None]


class TrackerMissing(ReelwordError, ImportError, code="tracker_missing"):
    """The package of a tracker is not installed; the message names it."""

    hint = "Install the package beside Reelword, or leave --track out."


def open_tracker(name: TrackerName, folder: Path) -> Tracker:
    """Opens a tracker for a run's folder. Raises TrackerMissing."""
    try:
        return _open_tensorboard(folder) if name == "tensorboard" else _open_wandb(folder)
    except ImportError as error:
        raise TrackerMissing(f"{name} is not installed ({error}).") from error


def _open_tensorboard(folder: Path) -> Tracker:
    """Writes event files below tensorboard/, with scalars called PHASE/NAME."""
    module: Any = import_module("torch.utils.tensorboard")
    writer = module.SummaryWriter(str(folder / "tensorboard"))

    def track(phase: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            writer.add_scalar(f"{phase}/{name}", value, step)
        writer.flush()  # the program may end at once

    return track


def _open_wandb(folder: Path) -> Tracker:
    """Goes on with the run that has the folder's name. Its own steps count through all phases."""
    wandb: Any = import_module("wandb")
    name = folder.absolute().name
    run = wandb.init(project="reelword", name=name, id=name, resume="allow", dir=str(folder))

    def track(phase: str, step: int, values: Mapping[str, float]) -> None:
        run.log({**{f"{phase}/{name}": value for name, value in values.items()}, f"{phase}/step": step})

    return track
