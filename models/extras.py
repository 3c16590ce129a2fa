"""What a captioner tells of itself beside the two maps, under the names of its paper.

Plain numbers and numpy, as ``models/caption.py``; each captioner's ``explain`` makes them of its tensors.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.floating[Any]]
DIGITS = 5  #: keep a weight exact to the eye and the document small


@dataclass(frozen=True)
class Moment:
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
class Candidate:
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
    selected: tuple[tuple[Moment, ...], ...] | None = None
    default_key_frame: Moment | None = None
    key_frame: Moment | None = None
    refocus: Array | None = None
    step_1: str | None = None
    step_2: str | None = None
    layers: Layers | None = None
    members: tuple[str, ...] | None = None
    candidates: tuple[Candidate, ...] | None = None

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
