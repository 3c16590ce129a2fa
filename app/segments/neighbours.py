"""Joins neighbouring segments that show and say the same: a shot that was cut, a scene filmed from two sides.

Two are alike where their pictures nearly are the same, or are alike and their captions are, too: as cosines
in the semantic embedding of the weights. Without an embedding captions must be the same, word for word.
Whether a segment joins is known as soon as it is there, from what those before it have become.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

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

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> Vectors:
        """Embeds pictures, uint8 (H, W, 3) each → (N, D)."""

    def sentences(self, sentences: Sequence[str]) -> Vectors:
        """Embeds sentences → (N, D)."""


@dataclass(frozen=True, eq=False)
class JoinedSegment:
    """Holds neighbours that became one segment, or a segment that is still alone."""

    #: Of the longest of them, whose caption stands for all, from the first one's start to the last one's end.
    document: SegmentDocument
    longest: float  #: seconds of that one
    picture: Vectors | None = None  #: (D,), its representative frame in the embedding; None without one
    sentence: Vectors | None = None  #: (D,), its caption in the embedding; None without one

    def with_next(self, other: Self) -> Self | None:
        """Joins the segment after it; None where they are not alike, or too long together."""
        if other.document.end - self.document.start > LONGEST or not self._is_like(other):
            return None
        longer = other if other.longest > self.longest else self
        times = {"start": self.document.start, "end": other.document.end}
        merged = self.document.merged + other.document.merged
        document = longer.document.model_copy(update={**times, "merged": merged})
        return replace(longer, document=document)

    def _is_like(self, other: Self) -> bool:
        vectors = (self.picture, other.picture, self.sentence, other.sentence)
        if any(vector is None for vector in vectors):
            return self.document.caption == other.document.caption
        picture, another, sentence, next_sentence = (np.asarray(vector) for vector in vectors)
        pictures, captions = float(picture @ another), float(sentence @ next_sentence)
        return pictures >= PICTURES_THE_SAME or (pictures >= PICTURES_ALIKE and captions >= CAPTIONS_ALIKE)


def join_alike(segments: Sequence[KnownSegment], space: SemanticSpace | None) -> list[SegmentDocument]:
    """Joins neighbours of one film that are alike, as far as ``space`` measures it.

    Returns of each group the longest segment, lasting from the first one's start to the last one's end.
    """
    captions = [segment.document.caption for segment in segments]
    sentences = space.sentences(captions) if space is not None and segments else [None] * len(segments)
    groups: list[JoinedSegment] = []
    for segment, sentence in zip(segments, sentences, strict=True):
        alone = JoinedSegment(segment.document, segment.document.duration, segment.picture, sentence)
        together = groups[-1].with_next(alone) if groups else None
        if together is None:
            groups.append(alone)
        else:
            groups[-1] = together
    return [group.document for group in groups]
