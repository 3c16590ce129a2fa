"""Sends the numbers of a run's log to what shows them while it trains: TensorBoard, or Weights & Biases."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Protocol

from extractors.errors import ReelwordError

TrackerName = Literal["tensorboard", "wandb"]


class TrackerMissing(ReelwordError, ImportError, code="tracker_missing"):
    """The package of a tracker is not installed; the message names it."""

    hint = "Install the package beside Reelword, or leave --track out."


class Tracker(Protocol):
    """Shows a run's numbers."""

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Takes numbers of one step of a phase, by their names."""


class TensorBoardTracker:
    """Writes event files into the run's folder, below tensorboard/."""

    def __init__(self, folder: Path) -> None:
        self._writer: Any = _import("torch.utils.tensorboard", "tensorboard").SummaryWriter(
            str(folder / "tensorboard"), flush_secs=10
        )

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Writes a scalar each, called PHASE/NAME."""
        for name, value in values.items():
            self._writer.add_scalar(f"{phase}/{name}", value, step)


class WandbTracker:
    """Sends numbers to Weights & Biases, as a run that has the folder's name and goes on with it."""

    def __init__(self, folder: Path) -> None:
        name = folder.absolute().name
        self._run: Any = _import("wandb", "wandb").init(
            project="reelword", name=name, id=name, resume="allow", dir=str(folder)
        )

    def log(self, phase: str, step: int, values: Mapping[str, float]) -> None:
        """Sends the numbers with the phase's step beside them: its own steps count through all phases."""
        named = {f"{phase}/{name}": value for name, value in values.items()}
        self._run.log({**named, f"{phase}/step": step})


def open_trackers(names: tuple[TrackerName, ...], folder: Path) -> tuple[Tracker, ...]:
    """Opens the trackers of these names for a run's folder. Raises TrackerMissing."""
    kinds = {"tensorboard": TensorBoardTracker, "wandb": WandbTracker}
    return tuple(kinds[name](folder) for name in names)


def _import(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise TrackerMissing(f"{package} is not installed ({error}).") from error
