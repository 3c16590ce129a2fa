"""What a user gets: words, their log-probabilities, and where the model looked for each.

numpy only, so that a caption can be stored, drawn and sent without loading torch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from extractors.features import WHOLE, View
from models.extras import Array, Extras, rounded, without_nothing


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
    view: the part of the frame that the grid covers.
    """

    words: tuple[str, ...]
    times: Array
    temporal: Array
    spatial: Array | None
    grid: tuple[int, int] | None
    boxes: Array | None
    extras: Extras = field(default_factory=Extras)
    view: View = WHOLE

    def to_json(self) -> dict[str, Any]:
        """The document that ``GET /jobs/{id}/attention`` answers with."""
        return {
            "words": list(self.words),
            "times": rounded(self.times, 4),
            "temporal": without_nothing(self.temporal),
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
        view = rounded(self.view, 4)
        return {"kind": "grid", "rows": rows, "columns": columns, "weights": weights, "view": view}


@dataclass(frozen=True, eq=False)
class Caption:
    """One caption. ``score`` is its log-probability over length^length_penalty, by which beams are ranked."""

    text: str
    words: tuple[Word, ...]
    score: float
    attention: Attention | None
