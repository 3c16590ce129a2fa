"""Plots the curves of runs: loss above, held-out CIDEr-D below, by step."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from extractors.errors import ReelwordError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = tuple[tuple[float, float], ...]


class NoCurves(ReelwordError, ValueError, code="no_curves"):
    """A folder without a log, or a log without numbers; the message says which."""

    hint = "Name a folder that reelword train wrote; its log.csv has the numbers."


@dataclass(frozen=True)
class Curves:
    """One run. Points are (step, value); phases follow each other on the axis of steps."""

    name: str
    loss: Points
    cider: Points


def read_curves(run: Path) -> Curves:
    """Reads log.csv of a run's folder. Raises NoCurves.

    Steps that were taken again after a stop count once, as they were taken last.
    """
    path = run / "log.csv"
    if not path.is_file():
        raise NoCurves(f"{run} has no log.csv; give the folder of a training run (--out of train)")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    first = _find_first_steps(rows)
    curves = {
        column: tuple(
            sorted({first[r["phase"]] + int(r["step"]): float(r[column]) for r in rows if r[column]}.items())
        )
        for column in ("loss", "cider")
    }
    if not any(curves.values()):
        raise NoCurves(f"{path} has no numbers yet; they come every twenty steps")
    return Curves(run.name, curves["loss"], curves["cider"])


def _find_first_steps(rows: Sequence[dict[str, str]]) -> dict[str, int]:
    """Returns phase → the steps of the phases before it."""
    lengths: dict[str, int] = {}
    for row in rows:
        lengths[row["phase"]] = max(lengths.get(row["phase"], 0), int(row["step"]))
    first, total = {}, 0
    for phase, length in lengths.items():
        first[phase] = total
        total += length
    return first


def draw(runs: Sequence[Curves]) -> "Figure":
    """Draws all runs into one figure of two panels. Raises ValueError for no runs."""
    from matplotlib.figure import Figure

    if not runs:
        raise ValueError("there is no run to draw")
    figure = Figure(figsize=(11, 8), layout="constrained")
    panels = figure.subplots(2, sharex=True)
    for panel, title in zip(panels, ("loss", "held-out CIDEr-D"), strict=True):
        panel.set_ylabel(title)
        panel.grid(alpha=0.3)
    for run in runs:
        for panel, points in zip(panels, (run.loss, run.cider), strict=True):
            steps, values = zip(*points, strict=True) if points else ((), ())
            panel.plot(steps, values, label=run.name, marker="." if len(points) < 50 else "")
    panels[0].legend()
    panels[1].set_xlabel("step")
    return figure
