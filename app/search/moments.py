"""Ranks moments by how well they fit some words: by their captions' words, captions and pictures."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from app.documents.search import FoundMoment
from app.segments.neighbours import SemanticSpace
from models.content_words import FUNCTION_WORDS, words_of

#: What each is worth: the share of the words asked for that stand in the caption, and the two cosines.
WORDS, CAPTION, PICTURE = 1.0, 0.5, 0.5


@dataclass(frozen=True, eq=False)
class Moment:
    """Holds a captioned stretch of a film that a search may return."""

    source: str  #: the film or job, as it is named to the user
    start: float  #: seconds, as players count
    end: float  #: seconds
    time: float  #: seconds; the picture is shown then
    caption: str
    vector: NDArray[np.float32] | None  #: (D,), the picture in the semantic embedding; None if not known
    picture: Callable[[], Image.Image]  #: fetches the picture
    job: str | None = None  #: the service's, whose moment it is
    address: str | None = None  #: of its picture, below the service's


@dataclass(frozen=True, eq=False)
class Found:
    """Holds a moment that fits a search."""

    moment: Moment
    fit: float  #: larger is better; of different searches it cannot be compared

    def document(self, root: str = "") -> FoundMoment:
        """Returns its JSON; ``root``: path that the address of its picture begins with."""
        moment = self.moment
        return FoundMoment(
            job=moment.job or "",
            source=moment.source,
            start=moment.start,
            end=moment.end,
            representative=moment.time,
            caption=moment.caption,
            fit=round(self.fit, 4),
            picture=root + (moment.address or ""),
        )


def rank(words: str, moments: Sequence[Moment], space: SemanticSpace | None, count: int) -> list[Found]:
    """Chooses the moments that fit best, the best first.

    Args:
        space: what captions and pictures are compared in; None where there is none, so that only words count.
        count: how many, at most. Those that fit not at all are left out.
    """
    fits = WORDS * np.array([share_of_words(words, moment.caption) for moment in moments], np.float64)
    if space is not None and moments:
        fits += _semantic(words, moments, space)
    order = np.argsort(-fits, kind="stable")[:count]
    return [Found(moments[place], float(fits[place])) for place in order.tolist() if fits[place] > 0]


def _semantic(words: str, moments: Sequence[Moment], space: SemanticSpace) -> NDArray[np.float64]:
    """Compares in the space (N,); a moment without a picture counts its caption twice."""
    [query] = space.sentences([words])
    captions = space.sentences([moment.caption for moment in moments]) @ query
    pictures = [
        caption if moment.vector is None else moment.vector @ query
        for moment, caption in zip(moments, captions, strict=True)
    ]
    return np.asarray(CAPTION * captions + PICTURE * np.array(pictures), np.float64)


def share_of_words(words: str, caption: str) -> float:
    """Counts the share of the words asked for that stand in the caption, without those that any has."""
    query = [word for word in words_of(words) if word not in FUNCTION_WORDS] or words_of(words)
    there = set(words_of(caption))
    return sum(word in there for word in query) / max(1, len(query))
