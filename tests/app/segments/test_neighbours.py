"""Neighbours that show and say the same become one segment."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from app.documents.segments import SegmentDocument
from app.segments.journal import KnownSegment
from app.segments.neighbours import LONGEST, SemanticSpace, join_alike
from app.segments.summary import moments
from models.caption import ScoredCaption
from tests.app.segments.colour_space import ColourSpace, unit

RED, PINK, BLUE = (250.0, 10.0, 10.0), (250.0, 20.0, 30.0), (10.0, 10.0, 250.0)
ROSE = (250.0, 10.0, 150.0)  # cosine with red 0.7
Colour = tuple[float, float, float]


def known(*told: tuple[float, str, Colour | None]) -> list[KnownSegment]:
    """Segments one behind the other: seconds, caption, the picture's colour."""
    found, start = [], 0.0
    for seconds, text, colour in told:
        captions = [ScoredCaption(text=text, score=-1.0, words=[])]
        document = SegmentDocument(
            start=start,
            end=start + seconds,
            representative=start + seconds / 2,
            caption=text,
            captions=captions,
        )
        picture = None if colour is None else unit([np.array(colour)])[0]
        found.append(KnownSegment(document, picture))
        start += seconds
    return found


def told(joined: Sequence[SegmentDocument]) -> list[tuple[float, float, str, int]]:
    return [(each.start, each.end, each.caption, each.merged) for each in joined]


def test_what_is_alike_in_words_and_picture_is_one_and_the_longest_speaks_for_it() -> None:
    segments = known(
        (3, "250 10 10", RED), (5, "250 20 30", PINK), (2, "250 10 10", RED), (4, "10 10 250", BLUE)
    )
    assert told(join_alike(segments, ColourSpace())) == [
        (0, 10, "250 20 30", 3),
        (10, 14, "10 10 250", 1),
    ]


def test_one_picture_is_one_segment_whatever_is_said_of_it() -> None:
    assert len(join_alike(known((3, "250 10 10", RED), (3, "10 10 250", PINK)), ColourSpace())) == 1


@pytest.mark.parametrize(
    ("text", "colour", "count"),
    [("250 10 10", BLUE, 2), ("10 10 250", ROSE, 2), ("250 10 10", ROSE, 1)],
    ids=["other picture", "a picture like it and other words", "a picture like it and the same words"],
)
def test_pictures_that_are_only_alike_need_words_that_are(text: str, colour: Colour, count: int) -> None:
    segments = known((3, "250 10 10", RED), (3, text, colour))
    assert len(join_alike(segments, ColourSpace())) == count


@pytest.mark.parametrize("space", [None, ColourSpace()])
def test_without_pictures_the_words_must_be_the_same(space: SemanticSpace | None) -> None:
    segments = known((3, "250 10 10", None), (3, "250 10 10", None), (3, "250 20 30", None))
    assert told(join_alike(segments, space)) == [(0, 6, "250 10 10", 2), (6, 9, "250 20 30", 1)]


def test_nothing_is_joined_for_longer_than_a_minute() -> None:
    joined = join_alike(known(*[(20.0, "250 10 10", RED)] * 7), ColourSpace())
    assert [each.merged for each in joined] == [3, 3, 1]
    assert all(each.duration <= LONGEST for each in joined)


def test_a_film_without_segments_stays_so() -> None:
    assert join_alike([], ColourSpace()) == []


def test_a_summary_looks_at_what_is_on_for_long() -> None:
    segments = [each.document for each in known((1, "a", RED), (20, "b", RED), (1, "c", RED), (18, "d", RED))]
    assert moments(segments, 4) == [11.0, 31.0]
    assert moments(segments, 40) == [0.5, 11.0, 21.5, 31.0]
    assert moments(segments[:1], 8) == [0.5]
