"""Makes of a video the same video restricted to one moment, or to one place of it.

This is done to the streams before a captioner encodes them, so that it holds for every captioner alike and
none has code for it. A film that is one moment alone has only the rows of that moment: the captioner sees a
short film, as it may be given any time. A picture that is one place alone lacks its other cells, or has them
masked as those that pad a batch are. Vectors of whole pictures stay as they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Features, Stream, View
from extractors.preprocessing.images import make_even_edges, map_to_picture
from models.captioner import as_numpy


def restrict_to_moment(features: Features, start: float, end: float) -> dict[str, Stream]:
    """Keeps of each stream the rows of one moment.

    Args:
        features: The streams of a video by name.
        start: Seconds at which the moment begins.
        end: Seconds at which it ends.

    Returns:
        Of each stream the rows whose middle lies in the moment; the row nearest to its middle where there is
        none.
    """
    return {name: take_rows(stream, _find_rows(stream, start, end)) for name, stream in features.items()}


def restrict_to_place(features: Features, place: View, needs_all_cells: bool) -> dict[str, Stream]:
    """Keeps of each stream the cells and boxes whose middle lies in one place; all where there is none.

    Args:
        features: The streams of a video by name.
        place: x0 y0 x1 y1 in [0, 1] of the picture.
        needs_all_cells: Whether a map has to stay whole: its other cells are masked then, and else left out.

    Returns:
        The streams, those without places as they are.
    """
    return {name: _keep_inside(stream, place, needs_all_cells) for name, stream in features.items()}


def list_places(stream: Stream) -> NDArray[np.float64]:
    """Lists the boxes (T, N, 4) of a stream's cells or boxes, x0 y0 x1 y1 in [0, 1] of the picture."""
    if stream.boxes is not None:
        return as_numpy(stream.boxes)
    side = round(stream.values.shape[1] ** 0.5)
    left, top, right, bottom = stream.view
    rows = map_to_picture(make_even_edges(side), top, bottom)
    columns = map_to_picture(make_even_edges(side), left, right)
    cells = [(columns[c], rows[r], columns[c + 1], rows[r + 1]) for r in range(side) for c in range(side)]
    return np.broadcast_to(np.array(cells), (len(stream), side * side, 4))


def has_places(stream: Stream) -> bool:
    """Tells whether a stream's rows have boxes, or cells of a square grid."""
    if stream.values.ndim < 3:  # (T, C)
        return False
    return stream.boxes is not None or round(stream.values.shape[1] ** 0.5) ** 2 == stream.values.shape[1]


def _find_rows(stream: Stream, start: float, end: float) -> NDArray[np.int64]:
    middles = (stream.start + stream.end) / 2
    inside = np.flatnonzero((start <= middles) & (middles < end))
    return inside if len(inside) else np.array([np.abs(middles - (start + end) / 2).argmin()])


def take_rows(stream: Stream, rows: NDArray[np.int64]) -> Stream:
    """Keeps some rows of a stream, by their places."""
    index = torch.from_numpy(rows).to(stream.values.device)
    return replace(
        stream,
        values=stream.values[index],
        start=stream.start[rows],
        end=stream.end[rows],
        boxes=None if stream.boxes is None else stream.boxes[index],
        mask=None if stream.mask is None else stream.mask[index],
    )


def _keep_inside(stream: Stream, place: View, needs_all_cells: bool) -> Stream:
    if not has_places(stream):
        return stream
    x0, y0, x1, y1 = place
    boxes = list_places(stream)
    x, y = (boxes[..., 0] + boxes[..., 2]) / 2, (boxes[..., 1] + boxes[..., 3]) / 2
    inside = torch.from_numpy((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)).to(stream.values.device)
    if stream.mask is not None:
        inside &= stream.mask if stream.mask.ndim == inside.ndim else stream.mask[:, None]
    if not inside.any():
        return stream
    if needs_all_cells or stream.boxes is not None or not inside.all(0).equal(inside.any(0)):
        return replace(stream, mask=inside)
    return replace(stream, values=stream.values[:, inside[0]], mask=None)
