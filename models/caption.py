"""What a user gets: words, their log-probabilities, and where the model looked for each.

numpy only, so that a caption can be stored, drawn and sent without loading torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Word:
    """One word and the natural logarithm of its probability given the words before it."""

    text: str
    logprob: float


@dataclass(frozen=True, eq=False)
class Attention:
    """For each of L words, weights over T moments and, within each moment, N cells or boxes.

    times: (T, 2), start and end of each moment in seconds.
    temporal: (L, T), each row sums to one.
    spatial: (L, T, N), sums to one over N, or None where a captioner attends to time alone.
    grid: (rows, columns) with rows·columns = N, or None where ``boxes`` (T, N, 4) say the places.
    extras: the captioner's own weights (L, …) under its own names, e.g. ``branch`` of STaTS.
    """

    words: tuple[str, ...]
    times: Array
    temporal: Array
    spatial: Array | None
    grid: tuple[int, int] | None
    boxes: Array | None
    extras: Mapping[str, Array]

    def to_json(self) -> dict[str, Any]:
        """The document that ``GET /jobs/{id}/attention`` answers with."""
        return {
            "words": list(self.words),
            "times": _rounded(self.times, 4),
            "temporal": _rounded(self.temporal),
            "spatial": self._spatial_json(),
            "extras": {name: _rounded(values) for name, values in self.extras.items()},
        }

    def _spatial_json(self) -> dict[str, Any] | None:
        if self.spatial is None:
            return None
        weights = _rounded(self.spatial)
        if self.boxes is not None:
            return {"kind": "boxes", "weights": weights, "boxes": _rounded(self.boxes, 4)}
        rows, columns = self.grid or (1, self.spatial.shape[2])
        return {"kind": "grid", "rows": rows, "columns": columns, "weights": weights}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Attention:
        """The inverse of ``to_json``, up to its rounding."""
        spatial = document["spatial"]
        is_grid = spatial is not None and spatial["kind"] == "grid"
        return cls(
            words=tuple(document["words"]),
            times=np.asarray(document["times"], dtype=np.float64),
            temporal=np.asarray(document["temporal"], dtype=np.float64),
            spatial=None if spatial is None else np.asarray(spatial["weights"], dtype=np.float64),
            grid=(spatial["rows"], spatial["columns"]) if is_grid else None,
            boxes=None if spatial is None or is_grid else np.asarray(spatial["boxes"], dtype=np.float64),
            extras={name: np.asarray(values) for name, values in document["extras"].items()},
        )


def _rounded(values: Array, digits: int = 5) -> Any:
    """Nested lists; five digits keep a weight exact to the eye and the document small."""
    return np.round(np.asarray(values, dtype=np.float64), digits).tolist()


@dataclass(frozen=True, eq=False)
class Caption:
    """One caption. ``score`` is its log-probability over length^length_penalty, by which beams are ranked."""

    text: str
    words: tuple[Word, ...]
    score: float
    attention: Attention | None
