"""Joins neighbouring segments that show and say the same: a shot that was cut, a scene filmed from two sides.

Two are alike where their pictures nearly are the same, or are alike and their captions are, too: as cosines
in the semantic embedding of the weights. Without an embedding captions must be the same, word for word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.documents.segments import SegmentDocument
from app.segments.journal import KnownSegment

#: Cosines; docs/results/long-video.md shows pairs of each kind.
CAPTIONS_ALIKE, PICTURES_ALIKE, PICTURES_THE_SAME = 0.8, 0.6, 0.9
#: Seconds that joined segments last at most: a caption on screen for longer says that nothing happens.
LONGEST = 60.0

Vectors = NDArray[np.float32]


class SemanticSpace(Protocol):
    """Makes unit vectors of pictures and sentences in one space, whose product is how well they fit."""

    @property
    def digest(self) -> str:
        """sha256 of the weights."""
        ...

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> Vectors:
        """uint8 (H, W, 3) each → (N, D)."""
        ...

    def sentences(self, sentences: Sequence[str]) -> Vectors:
        """(N, D)."""
        ...


def join_alike(segments: Sequence[KnownSegment], space: SemanticSpace | None) -> list[SegmentDocument]:
    """Joins neighbours that are alike.

    Args:
        segments: of one film, in their order.
        space: what alikeness is measured in; None where there is none.

    Returns:
        Of each group the longest segment, lasting from the first one's start to the last one's end.
    """
    groups: list[list[int]] = []
    alike = _Alikeness(segments, space)
    for place, known in enumerate(segments):
        group = groups[-1] if groups else []
        starts_at = segments[group[0]].document.start if group else 0.0
        if group and known.document.end - starts_at <= LONGEST and alike(_longest(segments, group), place):
            group.append(place)
        else:
            groups.append([place])
    return [_joined(segments, group) for group in groups]


class _Alikeness:
    def __init__(self, segments: Sequence[KnownSegment], space: SemanticSpace | None) -> None:
        self._captions = [known.document.caption for known in segments]
        self._pictures = [known.picture for known in segments]
        self._sentences = space.sentences(self._captions) if space is not None and segments else None

    def __call__(self, one: int, other: int) -> bool:
        picture, another = self._pictures[one], self._pictures[other]
        if self._sentences is None or picture is None or another is None:
            return self._captions[one] == self._captions[other]
        pictures = float(picture @ another)
        captions = float(self._sentences[one] @ self._sentences[other])
        return pictures >= PICTURES_THE_SAME or (pictures >= PICTURES_ALIKE and captions >= CAPTIONS_ALIKE)


def _longest(segments: Sequence[KnownSegment], group: Sequence[int]) -> int:
    return max(group, key=lambda place: segments[place].document.duration)


def _joined(segments: Sequence[KnownSegment], group: Sequence[int]) -> SegmentDocument:
    if len(group) == 1:
        return segments[group[0]].document
    spoken_for = segments[_longest(segments, group)].document
    first, last = segments[group[0]].document, segments[group[-1]].document
    return spoken_for.model_copy(update={"start": first.start, "end": last.end, "merged": len(group)})
