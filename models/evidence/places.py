"""Lists the parts of a picture of which a caption is read, and spreads what was read over its places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, Stream, View
from extractors.preprocessing.images import Edges, make_even_edges, map_to_picture
from models.caption import BoxAttention, GridAttention, PlaceWeights
from models.captioner import Array, as_numpy, rounded
from models.evidence.restriction import has_places

#: A window's share of a row of cells, and the step to the next window as a share of it.
WINDOW, STEP = 3 / 7, 2 / 3


class Places(Protocol):
    """Lists the parts of a moment's picture that are read, and spreads what was read over its N places."""

    def list_views(self, moment: int) -> list[View]:
        """Lists V parts, x0 y0 x1 y1 in [0, 1] of the picture."""
        ...

    def spread(self, moment: int, values: Array) -> Array:
        """Turns values of a moment's parts (V,) into values of its places (N,)."""
        ...

    def describe(self, weights: PlaceWeights) -> GridAttention | BoxAttention:
        """Makes a document of weights [word][moment][place]."""
        ...

    def find_box(self, moment: int, weights: Array) -> list[float] | None:
        """Finds the box with the largest weight (N,); None where places are no boxes."""
        ...


@dataclass(frozen=True)
class GridPlaces:
    """Reads a grid by windows of cells that overlap; a cell's value is the mean of the windows that have it.

    rows, columns: where they begin and the last one ends, in [0, 1] of the picture. view: what they cover.
    """

    rows: Edges
    columns: Edges
    view: View = WHOLE

    def list_views(self, moment: int) -> list[View]:  # noqa: ARG002  # they are the same at all moments
        return [
            (self.columns[c], self.rows[r], self.columns[d], self.rows[s]) for r, s, c, d in self._windows
        ]

    def spread(self, moment: int, values: Array) -> Array:  # noqa: ARG002
        total = np.zeros((len(self.rows) - 1, len(self.columns) - 1))
        count = np.zeros_like(total)
        for value, (r, s, c, d) in zip(values, self._windows, strict=True):
            total[r:s, c:d] += value
            count[r:s, c:d] += 1
        return (total / count).ravel()

    def describe(self, weights: PlaceWeights) -> GridAttention:
        return GridAttention(
            kind="grid",
            rows=len(self.rows) - 1,
            columns=len(self.columns) - 1,
            weights=weights,
            view=rounded(self.view, 4),
            row_edges=rounded(self.rows),
            column_edges=rounded(self.columns),
        )

    def find_box(self, moment: int, weights: Array) -> None:  # noqa: ARG002
        return None

    @property
    def _windows(self) -> list[tuple[int, int, int, int]]:
        """First and one past the last row, and the same of columns."""
        rows, columns = _cover(len(self.rows) - 1), _cover(len(self.columns) - 1)
        return [(*r, *c) for r in rows for c in columns]


@dataclass(frozen=True, eq=False)
class BoxPlaces:
    """Reads one box at a time.

    boxes: (T, N, 4), x0 y0 x1 y1 in [0, 1] of the picture. mask: bool (T, N), False for padding.
    """

    boxes: Array
    mask: NDArray[np.bool_]

    def list_views(self, moment: int) -> list[View]:
        return [(x0, y0, x1, y1) for x0, y0, x1, y1 in self.boxes[moment, self.mask[moment]].tolist()]

    def spread(self, moment: int, values: Array) -> Array:
        every = np.full(self.mask.shape[1], -np.inf)
        every[self.mask[moment]] = values
        return every

    def describe(self, weights: PlaceWeights) -> BoxAttention:
        return BoxAttention(kind="boxes", weights=weights, boxes=rounded(self.boxes))

    def find_box(self, moment: int, weights: Array) -> list[float] | None:
        box: list[float] = rounded(self.boxes[moment, int(weights.argmax())])
        return box


def find_places(stream: Stream) -> Places | None:
    """Finds the boxes or cells of a stream that can be shown alone; None where it has neither."""
    if not has_places(stream):
        return None
    if stream.boxes is not None:
        boxes = as_numpy(stream.boxes)
        mask = np.ones(boxes.shape[:2], dtype=bool) if stream.mask is None else stream.mask.cpu().numpy()
        return BoxPlaces(boxes, np.broadcast_to(mask.reshape(len(mask), -1), boxes.shape[:2]))
    left, top, right, bottom = stream.view
    edges = make_even_edges(round(stream.values.shape[1] ** 0.5))
    return GridPlaces(map_to_picture(edges, top, bottom), map_to_picture(edges, left, right), stream.view)


def _cover(cells: int) -> list[tuple[int, int]]:
    """Lists windows that cover a row of cells, each as its first and one past its last."""
    window = max(1, int(cells * WINDOW))
    begins = [*range(0, cells - window, max(1, int(window * STEP))), cells - window]
    return [(begin, begin + window) for begin in begins]
