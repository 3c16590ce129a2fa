"""Finds the part of a film's picture that lives, within bars or on a still desk."""

from dataclasses import dataclass

import cv2
import numpy as np
from cv2.typing import MatLike
from numpy.typing import NDArray

Pixels = MatLike

LIVES = 10.0  #: of 255: a pixel that changed by more lives
FADING = 0.99  #: of what a pixel changed by, what counts one picture later
LEAST_LINE = 0.15  #: of a row or column, the share that lives; a clock or a logo in a bar is less
LEAST_PART = 1 / 6  #: of the picture; a smaller part is weighed as if it were this large
FILLED = 0.7  #: of the part, the share that a cut changes; a movement before a still background changes less
PLAIN = 6.0  #: of 255: the standard deviation of bars of one colour
CARRIES = 12.0  #: of 255: the standard deviation from which a channel counts in full; less of it counts less


@dataclass(frozen=True, eq=False)
class LivingArea:
    """Scores changes by a box of the picture and by some of its channels.

    rows, columns: the box. channels: float64 (3,), the weights of hue, saturation and brightness, 1 in all.
    """

    rows: slice
    columns: slice
    channels: NDArray[np.float64]

    def score(self, change: Pixels | None) -> float:
        """Returns the mean of a change uint8 (h, w, 3); None is no change."""
        if change is None:
            return 0.0
        box = change[self.rows, self.columns]
        share = box.size / change.size
        return float(np.array(cv2.mean(box)[:3]) @ self.channels) * min(1.0, share / LEAST_PART)

    def correlation(self, one: Pixels, other: Pixels) -> float:
        """Returns how alike two pictures are in their brightness, -1 to 1."""
        values = np.stack([each[self.rows, self.columns, 2].ravel() for each in (one, other)]).astype(
            np.float64
        )
        values -= values.mean(1, keepdims=True)
        lengths = np.linalg.norm(values, axis=1)
        return float(values[0] @ values[1] / max(1.0, lengths[0] * lengths[1]))


class LivePart:
    """Remembers what each pixel has changed by, less and less of it as pictures go by."""

    def __init__(self) -> None:
        self._life: MatLike | None = None

    def add(self, change: Pixels) -> None:
        """Takes in by how much red, green and blue differ from the picture before, uint8 (h, w, 3)."""
        most = cv2.max(cv2.max(change[..., 0], change[..., 1]), change[..., 2]).astype(np.float32)
        self._life = most if self._life is None else cv2.max(FADING * self._life, most)

    def find(self, before: Pixels, after: Pixels) -> LivingArea:
        """Finds by which part a cut between two pictures, both uint8 (h, w, 3), is to be told.

        It is the box of what lived so far where all around it is of one colour, as bars are, or where nearly
        all of the box changes; else it is the whole picture.
        """
        assert self._life is not None, "there was no change yet"
        lives = self._life > LIVES
        rows, columns = _extent(lives.mean(1)), _extent(lives.mean(0))
        around = np.ones(lives.shape, np.bool_)
        around[rows, columns] = False
        changed = cv2.absdiff(before, after)[rows, columns].max(2) > LIVES
        is_plain = around.any() and after[around, 2].std() < PLAIN
        if not (is_plain or changed.mean() >= FILLED):
            rows = columns = slice(None)
        both = np.stack([before[rows, columns], after[rows, columns]])
        carries = np.minimum(both.std((0, 1, 2)) / CARRIES, 1.0)
        return LivingArea(rows, columns, carries / max(1.0, float(carries.sum())))


def _extent(shares: NDArray[np.float64]) -> slice:
    """Returns the range from the first to the last line of which enough lives."""
    lines = np.flatnonzero(shares >= LEAST_LINE)
    return slice(int(lines[0]), int(lines[-1]) + 1) if len(lines) else slice(None)
