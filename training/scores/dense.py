"""Scores captions of given segments as ActivityNet's evaluation of dense captions does.

Krishna et al., "Dense-Captioning Events in Videos" (2017). For a bound of the temporal intersection over
union (tIoU) a caption of a segment is paired with every reference of its video whose segment overlaps by as
much; a video's score is that of its pairs, and the score the mean over videos. Items are ``VIDEO@START-END``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.table import Table

from training.scores.bootstrap import Floats
from training.scores.cider import CiderD
from training.scores.java import JavaError, find_java
from training.scores.meteor import Meteor, compute_meteor
from training.scores.metrics import TITLES, TokenizedCaptions

BOUNDS: Final = (0.3, 0.5, 0.7, 0.9)
_SEGMENT: Final = re.compile(r".+@[\d.]+-[\d.]+")


@dataclass(frozen=True)
class DenseScores:
    """Scores in per cent by metric: one for each of BOUNDS, then their mean."""

    scores: Mapping[str, tuple[float, ...]]
    videos: int

    def to_json(self) -> dict[str, Any]:
        """Returns {"videos", metric: {bound: score, "mean": score}}."""
        columns = (*map(str, BOUNDS), "mean")
        named = {name: dict(zip(columns, scores, strict=True)) for name, scores in self.scores.items()}
        return {"videos": self.videos, **named}

    def table(self) -> Table:
        """Makes a table with a row a metric."""
        table = Table("at tIoU", *map(str, BOUNDS), "mean", title=f"segments of {self.videos} videos")
        for name, scores in self.scores.items():
            table.add_row(TITLES[name], *(f"{score:.1f}" for score in scores))
        return table


@dataclass(frozen=True)
class _Pair:
    """A caption and a reference of an overlapping segment, both as tokens."""

    video: str
    overlap: float  #: tIoU of their segments
    hypothesis: str
    reference: str


def score_dense(captions: TokenizedCaptions) -> DenseScores | None:
    """Scores captions whose items are segments; None where an item is none. METEOR needs Java."""
    if not all(_SEGMENT.fullmatch(name) for name in captions.ids):
        return None
    pairs = _pair(captions)
    scores = {"cider": _score(pairs, lambda places: _score_cider([pairs[place] for place in places]))}
    try:
        with Meteor(find_java()) as meteor:
            counts = meteor.count_matches([p.hypothesis for p in pairs], [[p.reference] for p in pairs])
        scores["meteor"] = _score(pairs, lambda places: float(compute_meteor(counts[places].sum(axis=0))))
    except JavaError:
        pass  # the report of the captions says why
    return DenseScores(scores, len({pair.video for pair in pairs}))


def _pair(captions: TokenizedCaptions) -> list[_Pair]:
    """Pairs captions with the references that overlap by the least bound or more."""
    videos: dict[str, list[tuple[Floats, str, Sequence[str]]]] = {}
    for name, text, references in zip(captions.ids, captions.hypotheses, captions.references, strict=True):
        video, _, seconds = name.rpartition("@")
        segment = np.array([float(each) for each in seconds.split("-")])
        videos.setdefault(video, []).append((segment, text, references))
    return [
        _Pair(video, overlap, text, reference)
        for video, segments in videos.items()
        for segment, text, _ in segments
        for other, _, references in segments
        if (overlap := compute_overlap(segment, other)) >= BOUNDS[0]
        for reference in references
    ]


def compute_overlap(first: Floats, second: Floats) -> float:
    """Computes the tIoU of two segments (start, end) in seconds."""
    both = min(first[1], second[1]) - max(first[0], second[0])
    return max(0.0, float(both / (max(first[1], second[1]) - min(first[0], second[0]))))


def _score(pairs: Sequence[_Pair], score_video: Callable[[list[int]], float]) -> tuple[float, ...]:
    """Computes the mean over videos at each bound, then the mean of these.

    score_video: of the places of a video's pairs.
    """
    scores = []
    for bound in BOUNDS:
        videos: dict[str, list[int]] = {}
        for place, pair in enumerate(pairs):
            if pair.overlap >= bound:
                videos.setdefault(pair.video, []).append(place)
        scores.append(100 * float(np.mean([score_video(places) for places in videos.values()])))
    return (*scores, float(np.mean(scores)))


def _score_cider(pairs: Sequence[_Pair]) -> float:
    """Computes CIDEr-D of a video's pairs, which are the corpus of its n-grams."""
    named = {str(place): pair for place, pair in enumerate(pairs)}
    scorer = CiderD({name: [pair.reference.split()] for name, pair in named.items()})
    return float(scorer.score(list(named), [pair.hypothesis.split() for pair in pairs]).mean())
