"""Lists the parts of a picture of which a caption is read, and spreads what was read over its places."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, Stream, View
from extractors.preprocessing.images import Edges, make_even_edges, map_to_picture
from models.caption import BoxAttention, GridAttention, PlaceWeights
from models.captioner import Array, as_numpy, rounded
from models.evidence.reader import VideoPart, has_places

#: β of places that are read alone, and of those that are hidden, without which little is lost.
ALONE, HIDDEN = 2.0, 8.0
#: Parts that are hidden, each way, and the share of the picture that each has: docs/results/evidence.md.
WINDOWS, WINDOW = 3, 3 / 7


class Places(Protocol):
    """Lists the parts of a moment that are read, and spreads what was read over its N places."""

    @property
    def sharpness(self) -> float:
        """β of the softmax over what ``spread`` returns."""

    def list_parts(self, moment: int) -> list[VideoPart]:
        """Lists V parts of a moment."""

    def spread(self, moment: int, values: Array) -> Array:
        """Turns log-probabilities of a moment's parts (V,) into what each place is worth (N,)."""

    def describe(self, weights: PlaceWeights) -> GridAttention | BoxAttention:
        """Makes a document of weights [word][moment][place]."""

    def find_box(self, moment: int, weights: Array) -> list[float] | None:
        """Finds the box with the largest weight (N,); None where places are no boxes."""


@dataclass(frozen=True)
class GridPlaces:
    """Reads some parts of a grid of cells, and the cells between them by linear interpolation."""

    rows: Edges  #: where they begin and the last one ends, in [0, 1] of the picture
    columns: Edges  #: the same
    view: View = WHOLE  #: what they cover
    parts: int = 4  #: how many are read each way, as far apart as may be
    width: float = 0.0  #: the share of the grid that a part has each way; one cell at least
    is_hidden: bool = False  #: a part is worth what is lost without it; else what it tells alone

    @property
    def sharpness(self) -> float:
        return HIDDEN if self.is_hidden else ALONE

    def list_parts(self, moment: int) -> list[VideoPart]:
        return [
            VideoPart(moment, (self.columns[c], self.rows[r], self.columns[d], self.rows[s]), self.is_hidden)
            for r, s in self._cut(self.rows)
            for c, d in self._cut(self.columns)
        ]

    def spread(self, moment: int, values: Array) -> Array:  # noqa: ARG002  # the same at all moments
        rows, columns = self._cut(self.rows), self._cut(self.columns)
        table = (-values if self.is_hidden else values).reshape(len(rows), len(columns))
        # what lies at the edge is in the middle of no part, and must not be worth as much as what does
        least = float(table.min())
        wide = np.stack([_interpolate(columns, row, len(self.columns) - 1, least) for row in table])
        places = [_interpolate(rows, column, len(self.rows) - 1, least) for column in wide.T]
        return np.stack(places, 1).ravel()

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

    def _cut(self, edges: Edges) -> list[tuple[int, int]]:
        """Lists the parts of a row of cells, each as its first cell and one past its last."""
        cells = len(edges) - 1
        width = max(1, round(cells * self.width))
        begins = np.unique(np.linspace(0, cells - width, self.parts).round().astype(int))
        return [(begin, begin + width) for begin in begins.tolist()]


@dataclass(frozen=True, eq=False)
class BoxPlaces:
    """Reads one box at a time."""

    boxes: Array  #: (T, N, 4), x0 y0 x1 y1 in [0, 1] of the picture
    mask: NDArray[np.bool_]  #: bool (T, N), False for padding
    sharpness: float = ALONE

    def list_parts(self, moment: int) -> list[VideoPart]:
        boxes = self.boxes[moment, self.mask[moment]].tolist()
        return [VideoPart(moment, (x0, y0, x1, y1)) for x0, y0, x1, y1 in boxes]

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
    rows, columns = map_to_picture(edges, top, bottom), map_to_picture(edges, left, right)
    return GridPlaces(rows, columns, stream.view, WINDOWS, WINDOW, is_hidden=True)


def _interpolate(parts: list[tuple[int, int]], values: Array, cells: int, beyond: float) -> Array:
    """Turns values at the middles of parts into values of ``cells`` cells. beyond: of what is outside."""
    middles = [(begin + end - 1) / 2 for begin, end in parts]
    step = middles[0] + 1
    around = [middles[0] - step, *middles, middles[-1] + step]
    spread: Array = np.interp(np.arange(cells), around, np.array([beyond, *values, beyond]))
    return spread
