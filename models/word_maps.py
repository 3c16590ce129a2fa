"""Turns weights of words over moments, cells and boxes into plain numbers (models/caption.py)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, View
from extractors.preprocessing.images import Edges, make_even_edges, map_to_picture
from models.caption import AttentionDocument, BoxAttention, ExplanationPart, GridAttention
from models.captioner import Array, rounded, without_nothing
from models.content_words import mark_content

#: From this normalised entropy on, a word's weights over time are called spread over the whole clip. Of eight
#: moments the heaviest then has about twice an even share at most, if all others are alike.
SPREAD_ENTROPY = 0.97


def attention_document(
    words: Sequence[str],
    times: Array,
    temporal: Array,
    spatial: GridAttention | BoxAttention | None,
    extras: Sequence[ExplanationPart] = (),
) -> AttentionDocument:
    """Puts together where a captioner looked.

    Args:
        words: L, of the caption.
        times: (T, 2), start and end of each moment in seconds.
        temporal: (L, T), each row sums to one; zeros for a word that had no attention.
        spatial: weights of places within each moment; None where a captioner attends to time alone.
        extras: what the captioner shows beside.
    """
    entropies = [normalised_entropy(row) for row in temporal]
    return AttentionDocument(
        words=list(words),
        content=mark_content(words),
        times=rounded(times, 4),
        parts=rounded(parts_of_clip(times), 4),
        temporal=without_nothing(temporal),
        entropy=entropies,
        spread=[value is not None and value >= SPREAD_ENTROPY for value in entropies],
        spatial=spatial,
        extras=list(extras),
    )


def grid_attention(
    weights: Array,
    temporal: Array,
    grid: tuple[int, int],
    view: View = WHOLE,
    edges: tuple[Edges, Edges] | None = None,
) -> GridAttention:
    """Makes a document of weights over the cells of a grid.

    Args:
        weights: (L, T, N), sums to one over the N cells, row by row.
        temporal: (L, T), zeros for a word that had no attention.
        grid: rows and columns; their product is N.
        view: the part of the frame that the network saw, x0 y0 x1 y1 in [0, 1].
        edges: where rows and columns begin and end in [0, 1] of the view; None where they tile it evenly.
    """
    rows, columns = grid
    left, top, right, bottom = view
    of_rows, of_columns = edges or (make_even_edges(rows), make_even_edges(columns))
    return GridAttention(
        kind="grid",
        rows=rows,
        columns=columns,
        weights=_by_word(weights, temporal),
        view=rounded(view, 4),
        row_edges=rounded(map_to_picture(of_rows, top, bottom)),
        column_edges=rounded(map_to_picture(of_columns, left, right)),
    )


def box_attention(weights: Array, temporal: Array, boxes: Array) -> BoxAttention:
    """Makes a document of weights over boxes.

    Args:
        weights, temporal: as of ``grid_attention``, over N boxes.
        boxes: (T, N, 4), x0 y0 x1 y1 in [0, 1] of the picture.
    """
    return BoxAttention(kind="boxes", weights=_by_word(weights, temporal), boxes=rounded(boxes, 4))


def _by_word(weights: Array, temporal: Array) -> list[list[list[float]] | None]:
    """Makes nested lists; None for a word that had no attention."""
    pairs = zip(weights, temporal, strict=True)
    return [rounded(of_word) if np.any(over_time) else None for of_word, over_time in pairs]


def split_times(times: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Cuts each of (T, 2) seconds into ``count`` equal parts: (T · count, 2)."""
    edges = times[:, :1] + (times[:, 1:] - times[:, :1]) * np.arange(count + 1) / count
    return np.stack([edges[:, :-1], edges[:, 1:]], 2).reshape(-1, 2)


def parts_of_clip(times: Array) -> Array:
    """Finds the part of the clip that each moment stands for, (T, 2) seconds, from the moments' own times.

    A sampled frame lies in the middle of its part, while its time runs from its own begin to the next one's:
    such moments follow each other without a gap and the first begins after 0. Their parts meet half way
    between two frames. Windows, and frames taken from the very begin on, cover their parts as they are.
    """
    begins, ends = times[:, 0], times[:, 1]
    follow_each_other = np.allclose(begins[1:], ends[:-1], atol=1e-3)
    if len(times) == 0 or begins[0] <= 0 or not follow_each_other:
        return times
    meetings = (begins[1:] + begins[:-1]) / 2
    return np.stack([np.r_[0.0, meetings], np.r_[meetings, ends[-1]]], 1)


def normalised_entropy(weights: Array) -> float | None:
    """Divides the entropy of a word's weights by that of even ones: 0 for one moment alone, 1 for all alike.

    None where there is nothing to spread over: no attention, or a single moment.
    """
    if len(weights) < 2 or not np.any(weights):
        return None
    some = weights[weights > 0]
    return round(float(-(some * np.log(some)).sum() / np.log(len(weights))), 4)
