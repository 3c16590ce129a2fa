"""What a user gets: words, their log-probabilities, and where the model looked for each.

numpy only, so that a caption can be stored, drawn and sent without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, View
from extractors.preprocessing.cell_edges import Edges, make_even_edges, map_to_picture

# What a captioner tells of itself beside the two maps, under the names of its paper.
#
# Plain numbers and numpy, as ``models/caption.py``; each captioner's ``explain`` makes them of its tensors.


Array: TypeAlias = NDArray[np.floating[Any]]
DIGITS = 5  #: keep a weight exact to the eye and the document small


@dataclass(frozen=True)
class KeyMoment:
    """A moment that was chosen. moment: its place in the attention's ``times``. time: seconds, its start.

    weight: of the attention that chose it.
    """

    moment: int
    time: float
    weight: float


@dataclass(frozen=True, eq=False)
class Layers:
    """dualAFR. names: of the L streams. weights: (words, L), β of eq. 7; zeros where a word had none."""

    names: tuple[str, ...]
    weights: Array


@dataclass(frozen=True)
class RankedCaption:
    """Fusion. captioner: whose caption it is. beam: its place among theirs, 0 the best. score: theirs, the
    log-probability over length^length_penalty. relevance: the cosine of caption and video. likelihood: the
    log-probability a word, mean over all members. merit: what won, relevance and weighted likelihood."""

    captioner: str
    beam: int
    text: str
    score: float
    relevance: float
    likelihood: float
    merit: float


@dataclass(frozen=True, eq=False)
class Extras:
    """None stands for what a captioner does not have.

    branch: STaTS, (words, streams, 2), the shares of ST and TS. st_spatial: STaTS, (words, N), where ST
    looked, the mean over frames. selected: G2L, for each word its key frames, rising. default_key_frame,
    key_frame: refocus, where step 1 and step 2 begin. refocus: (T,), α of eq. 9, by which the key frame is
    chosen. step_1, step_2: refocus, the caption of each step. layers: dualAFR. members: an ensemble's; the
    attention beside it is the first one's. candidates: fusion, the best first.
    """

    branch: Array | None = None
    st_spatial: Array | None = None
    selected: tuple[tuple[KeyMoment, ...], ...] | None = None
    default_key_frame: KeyMoment | None = None
    key_frame: KeyMoment | None = None
    refocus: Array | None = None
    step_1: str | None = None
    step_2: str | None = None
    layers: Layers | None = None
    members: tuple[str, ...] | None = None
    candidates: tuple[RankedCaption, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Every member by its name, null where the captioner does not have it."""
        return _json_of(self)


def without_nothing(weights: Array) -> list[list[float] | None]:
    """(words, n) as rows; None for a word whose weights are all zero, which had no attention."""
    return [rounded(row) if np.any(row) else None for row in weights]


def rounded(values: Any, digits: int = DIGITS) -> Any:
    """Nested lists, or a number."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


def _json_of(value: Any) -> dict[str, Any]:
    return {field.name: _json(getattr(value, field.name)) for field in fields(value)}


def _json(value: Any) -> Any:
    if isinstance(value, Layers):
        return {"names": list(value.names), "weights": without_nothing(value.weights)}
    if is_dataclass(value):
        return _json_of(value)
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, np.ndarray | float):
        return rounded(value)
    return value


#: From this normalised entropy on, a word's weights over time are called spread over the whole clip. Of eight
#: moments the heaviest then has about twice an even share at most, if all others are alike.
SPREAD_ENTROPY = 0.97


@dataclass(frozen=True)
class Word:
    """One word and the natural logarithm of its probability given the words before it."""

    text: str
    logprob: float


@dataclass(frozen=True, eq=False)
class Attention:
    """For each of L words, weights over T moments and, within each moment, N cells or boxes.

    times: (T, 2), start and end of each moment in seconds.
    temporal: (L, T), each row sums to one; zeros for a word that had no attention.
    spatial: (L, T, N), sums to one over N, or None where a captioner attends to time alone.
    grid: (rows, columns) with rows·columns = N, or None where ``boxes`` (T, N, 4) say the places.
    extras: what the captioner tells of itself.
    view: the part of the frame that the network saw.
    edges: where the grid's rows and columns begin and end, in [0, 1] of the picture; None where they tile the
    view evenly.
    """

    words: tuple[str, ...]
    times: Array
    temporal: Array
    spatial: Array | None
    grid: tuple[int, int] | None
    boxes: Array | None
    extras: Extras = field(default_factory=Extras)
    view: View = WHOLE
    edges: tuple[Edges, Edges] | None = None

    def to_json(self) -> dict[str, Any]:
        """The document that ``GET /jobs/{id}/attention`` answers with."""
        entropies = [normalised_entropy(row) for row in self.temporal]
        return {
            "words": list(self.words),
            "times": rounded(self.times, 4),
            "parts": rounded(parts_of_clip(self.times), 4),
            "temporal": without_nothing(self.temporal),
            "entropy": entropies,
            "spread": [value is not None and value >= SPREAD_ENTROPY for value in entropies],
            "spatial": self._spatial_json(),
            "extras": self.extras.to_json(),
        }

    def _spatial_json(self) -> dict[str, Any] | None:
        if self.spatial is None:
            return None
        had_any = [bool(row.any()) for row in self.temporal]
        pairs = zip(self.spatial, had_any, strict=True)
        weights = [rounded(of_word) if has_any else None for of_word, has_any in pairs]
        if self.boxes is not None:
            return {"kind": "boxes", "weights": weights, "boxes": rounded(self.boxes, 4)}
        rows, columns = self.grid or (1, self.spatial.shape[2])
        row_edges, column_edges = self.edges or self._even_edges(rows, columns)
        return {
            "kind": "grid",
            "rows": rows,
            "columns": columns,
            "weights": weights,
            "view": rounded(self.view, 4),
            "row_edges": rounded(row_edges),
            "column_edges": rounded(column_edges),
        }

    def _even_edges(self, rows: int, columns: int) -> tuple[Edges, Edges]:
        left, top, right, bottom = self.view
        return map_to_picture(make_even_edges(rows), top, bottom), map_to_picture(
            make_even_edges(columns), left, right
        )


def parts_of_clip(times: Array) -> Array:
    """The part of the clip that each moment stands for, (T, 2) seconds, from the moments' own times.

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
    """Entropy of a word's weights over that of even ones: 0 for one moment alone, 1 for all alike.

    None where there is nothing to spread over: no attention, or a single moment.
    """
    if len(weights) < 2 or not np.any(weights):
        return None
    some = weights[weights > 0]
    return round(float(-(some * np.log(some)).sum() / np.log(len(weights))), 4)


@dataclass(frozen=True, eq=False)
class Caption:
    """One caption. ``score`` is its log-probability over length^length_penalty, by which beams are ranked."""

    text: str
    words: tuple[Word, ...]
    score: float
    attention: Attention | None
