"""The curves of runs as one picture: loss above, held-out CIDEr-D below, by step.

Drawn with Pillow, which is there for the attention pictures; a plotting library would be one more dependency
for two panels of lines.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

PAPER, INK, FAINT = (255, 255, 255), (40, 44, 52), (222, 226, 232)
#: One a run, told apart in grey as well (Okabe and Ito's).
COLOURS = ((0, 114, 178), (213, 94, 0), (0, 158, 115), (204, 121, 167), (86, 180, 233), (230, 159, 0))
WIDTH, PANEL, LEFT, RIGHT, TOP, GAP = 1100, 330, 70, 24, 24, 46
TEXT = 16
TICKS = 6

Points = tuple[tuple[float, float], ...]


class NoCurves(ValueError):
    """A folder without a log, or a log without numbers; the message says which."""


@dataclass(frozen=True)
class Curves:
    """One run. Points are (step, value); phases follow each other on the axis of steps."""

    name: str
    loss: Points
    cider: Points


def read_curves(run: Path) -> Curves:
    """Of a run's folder. Raises NoCurves.

    Steps that were taken again after a stop count once, as they were taken last.
    """
    path = run / "log.csv"
    if not path.is_file():
        raise NoCurves(f"{run} has no log.csv; give the folder of a training run (--out of train)")
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    first = _first_steps(rows)
    found = {
        column: tuple(
            sorted({first[r["phase"]] + int(r["step"]): float(r[column]) for r in rows if r[column]}.items())
        )
        for column in ("loss", "cider")
    }
    if not any(found.values()):
        raise NoCurves(f"{path} has no numbers yet; they come every twenty steps")
    return Curves(run.name, found["loss"], found["cider"])


def _first_steps(rows: Sequence[dict[str, str]]) -> dict[str, int]:
    """Phase → the steps of the phases before it."""
    lengths: dict[str, int] = {}
    for row in rows:
        lengths[row["phase"]] = max(lengths.get(row["phase"], 0), int(row["step"]))
    first, total = {}, 0
    for phase, length in lengths.items():
        first[phase] = total
        total += length
    return first


def draw(runs: Sequence[Curves]) -> Image.Image:
    """RGB. Raises ValueError for no runs."""
    if not runs:
        raise ValueError("there is no run to draw")
    legend = TEXT + 12
    image = Image.new("RGB", (WIDTH, TOP + legend * len(runs) + 2 * (PANEL + GAP)), PAPER)
    pen = ImageDraw.Draw(image)
    font = ImageFont.load_default(TEXT)
    for i, run in enumerate(runs):
        y = TOP + i * legend
        pen.line([(LEFT, y + TEXT // 2), (LEFT + 40, y + TEXT // 2)], _colour(i), 3)
        pen.text((LEFT + 50, y - 2), run.name, INK, font)
    top = TOP + legend * len(runs)
    _Panel(pen, top, "loss").draw([run.loss for run in runs])
    _Panel(pen, top + PANEL + GAP, "held-out CIDEr-D").draw([run.cider for run in runs])
    return image


def _colour(run: int) -> tuple[int, int, int]:
    return COLOURS[run % len(COLOURS)]


@dataclass(frozen=True)
class _Panel:
    """A frame with two axes at ``top``."""

    pen: ImageDraw.ImageDraw
    top: int
    title: str

    def draw(self, lines: Sequence[Points]) -> None:
        points = [point for line in lines for point in line]
        font = ImageFont.load_default(TEXT)
        self.pen.text((LEFT, self.top), self.title if points else f"{self.title}: none yet", INK, font)
        if not points:
            return
        steps = ticks(0, max(x for x, _ in points))
        values = ticks(min(y for _, y in points), max(y for _, y in points))
        across = _scale(steps[0], steps[-1], LEFT, WIDTH - RIGHT)
        down = _scale(values[0], values[-1], self.top + PANEL, self.top + TEXT + 12)
        for x in steps:
            self.pen.line([(across(x), down(values[0])), (across(x), down(values[-1]))], FAINT)
            self.pen.text((across(x), down(values[0]) + 6), f"{x:g}", INK, font, anchor="mt")
        for y in values:
            self.pen.line([(across(steps[0]), down(y)), (across(steps[-1]), down(y))], FAINT)
            self.pen.text((LEFT - 8, down(y)), f"{y:g}", INK, font, anchor="rm")
        for i, line in enumerate(lines):
            path = [(across(x), down(y)) for x, y in line]
            self.pen.line(path, _colour(i), 2, joint="curve")
            for x, y in path if len(path) < 40 else ():
                self.pen.ellipse((x - 3, y - 3, x + 3, y + 3), _colour(i))


def _scale(low: float, high: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda value: begin + (value - low) / (high - low) * (end - begin)


def ticks(low: float, high: float) -> list[float]:
    """Round numbers, evenly spaced, from at most ``low`` to at least ``high``; two or more."""
    if high <= low:
        high = low + 1
    step = _round_up((high - low) / TICKS)
    return list(_multiples(math.floor(low / step), math.ceil(high / step), step))


def _multiples(first: int, last: int, step: float) -> Iterator[float]:
    for i in range(first, last + 1):
        yield round(i * step, 10)


def _round_up(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= value * (1 - 1e-9))
