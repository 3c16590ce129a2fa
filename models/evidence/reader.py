"""Reads a caption of parts of its video: of one moment, one place of it, or all but one place.

The streams are restricted before a captioner encodes them, so that this holds for every captioner alike and
none has code for it. A film that is one moment alone has only the rows of that moment, as a short film has. A
picture that is one place alone lacks its other cells, or has them masked as those that pad a batch are.
Vectors of whole pictures stay as they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Features, Stream, View
from extractors.preprocessing.images import STEPS, make_even_edges, map_to_picture
from models.captioner import Array, Captioner, as_numpy
from models.likelihood import score_chosen_words


@dataclass(frozen=True)
class VideoPart:
    """Is one moment of a video, or one place of that: x0 y0 x1 y1 in [0, 1] of the picture, None for all."""

    moment: int
    place: View | None = None
    is_hidden: bool = False  #: the place is what is left out, and all of the moment else is there


def _restrict_to_place(features: Features, part: VideoPart, needs_all_cells: bool) -> dict[str, Stream]:
    """Keeps of each stream the cells and boxes whose middle lies in one place, or outside of a hidden one.

    All are kept where none would be left.

    needs_all_cells: whether a map has to stay whole: its other cells are masked then, and else left out.
    Returns the streams, those without places as they are.
    """
    if part.place is None:
        return dict(features)
    return {
        name: stream if name in STEPS else _keep_cells(stream, part.place, part.is_hidden, needs_all_cells)
        for name, stream in features.items()
    }


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


def _take_moment(stream: Stream, start: float, end: float) -> Stream:
    """Keeps the rows whose middle lies in a moment, in seconds; the nearest to its middle where none does."""
    middles = (stream.start + stream.end) / 2
    inside = np.flatnonzero((start <= middles) & (middles < end))
    first, last = inside[[0, -1]] if len(inside) else [np.abs(middles - (start + end) / 2).argmin()] * 2
    return take_rows(stream, slice(int(first), int(last) + 1))


def take_rows(stream: Stream, rows: NDArray[np.int64] | slice) -> Stream:
    """Keeps some rows of a stream, by their places; those of a slice uncopied."""
    index = rows if isinstance(rows, slice) else torch.from_numpy(rows).to(stream.values.device)
    return replace(
        stream,
        values=stream.values[index],
        start=stream.start[rows],
        end=stream.end[rows],
        boxes=None if stream.boxes is None else stream.boxes[index],
        mask=None if stream.mask is None else stream.mask[index],
    )


def _keep_cells(stream: Stream, place: View, is_hidden: bool, needs_all_cells: bool) -> Stream:
    if not has_places(stream):
        return stream
    x0, y0, x1, y1 = place
    boxes = list_places(stream)
    x, y = (boxes[..., 0] + boxes[..., 2]) / 2, (boxes[..., 1] + boxes[..., 3]) / 2
    inside = (x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)
    kept = torch.from_numpy(inside != is_hidden).to(stream.values.device)
    if stream.mask is not None:
        kept &= stream.mask if stream.mask.ndim == kept.ndim else stream.mask[:, None]
    if not kept.any():
        return stream
    if needs_all_cells or stream.boxes is not None or not kept.all(0).equal(kept.any(0)):
        return replace(stream, mask=kept)
    return replace(stream, values=stream.values[:, kept[0]], mask=None)


class CaptionReader(Protocol):
    """Reads one caption of L words where its video is a part of itself alone."""

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Computes log-probabilities of words, each after the true words before it.

        words: (P, L), which words are in question of each. Returns (P, L) natural logarithms, 0 where
        ``words`` is False.
        """


@dataclass(frozen=True, eq=False)
class FeatureReader:
    """Reads with a captioner of features."""

    captioner: Captioner  #: who wrote the caption
    features: Features  #: the video's streams by name
    times: Array  #: (T, 2) seconds, the moments
    tokens: Sequence[int]  #: the ids of the words

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Reads as ``CaptionReader`` says, parts of which words in question come late before the others."""
        lasts = words.shape[1] - words[:, ::-1].argmax(1)
        order = np.argsort(-lasts, kind="stable")
        scorer, videos = self.captioner.word_scorer, self._restrict([parts[k] for k in order])
        read = np.zeros(words.shape)
        with torch.inference_mode():
            memory = scorer.encode(videos)
            device = memory.times.device
            targets = torch.tensor([list(self.tokens)] * len(parts), device=device)
            chosen = torch.from_numpy(words[order]).to(device)
            read[order] = as_numpy(score_chosen_words(scorer, memory, targets, chosen))
        return read

    def _restrict(self, parts: Sequence[VideoPart]) -> list[dict[str, Stream]]:
        """Makes a video of each part."""
        names = {each.name for each in self.captioner.word_scorer.inputs}
        features = {name: stream for name, stream in self.features.items() if name in names}
        moments = {
            moment: {name: _take_moment(stream, *self.times[moment]) for name, stream in features.items()}
            for moment in {part.moment for part in parts}
        }
        whole = self.captioner.needs_all_cells
        return [_restrict_to_place(moments[part.moment], part, whole) for part in parts]
