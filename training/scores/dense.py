"""Scores captions of given segments as ActivityNet's evaluation of dense captions does.

Krishna et al., "Dense-Captioning Events in Videos" (2017). For a bound of the temporal intersection over
union (tIoU) a caption of a segment is paired with every reference of its video whose segment overlaps by as
much; a video's score is that of its pairs, and the score the mean over videos. Items are ``VIDEO@START-END``.

Compared with evaluate.py of ranjaykrishna/densevid_eval at 9d4045a: METEOR and CIDEr-D of random captions and
segments are equal, characters beyond ASCII left out as there. What given segments cannot show is not here: a
caption that overlaps with no reference (there it is compared with random letters), precision and recall. A
video without any caption counts nothing there, and is left out here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from rich.table import Table

from training.scores.bootstrap import Floats
from training.scores.cider import CiderD
from training.scores.java import Java, JavaError, find_java
from training.scores.meteor import Meteor, compute_meteor
from training.scores.metrics import TITLES
from training.scores.tokenizer import tokenize

BOUNDS: Final = (0.3, 0.5, 0.7, 0.9)
_SEGMENT: Final = re.compile(r".+@[\d.]+-[\d.]+")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]")


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


def score_dense(hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]]) -> DenseScores | None:
    """Scores captions of segments against all references of their videos; None where an item is no segment.

    METEOR needs Java.

    Args:
        hypotheses: id → caption.
        references: id → captions that people wrote, also of segments that have no caption.
    """
    if not all(map(_SEGMENT.fullmatch, hypotheses)):
        return None
    java = None
    with suppress(JavaError):  # the report of the captions says why
        java = find_java()
    pairs = _pair(hypotheses, references, java)
    scores = {"cider": _score(pairs, lambda places: _score_cider([pairs[place] for place in places]))}
    if java is not None:
        with suppress(JavaError), Meteor(java) as meteor:
            counts = meteor.count_matches([p.hypothesis for p in pairs], [[p.reference] for p in pairs])
            scores["meteor"] = _score(pairs, lambda places: float(compute_meteor(counts[places].sum(axis=0))))
    return DenseScores(scores, len({pair.video for pair in pairs}))


def _pair(
    hypotheses: Mapping[str, str], references: Mapping[str, Sequence[str]], java: Java | None
) -> list[_Pair]:
    """Pairs captions with the references that overlap by the least bound or more."""
    segments = [
        (name, text) for name, texts in references.items() if _SEGMENT.fullmatch(name) for text in texts
    ]
    texts = [*hypotheses.values(), *(text for _, text in segments)]
    tokens = iter(tokenize([_NOT_ASCII.sub(" ", text) for text in texts], java))
    written = [(*_parse(name), next(tokens)) for name in hypotheses]
    videos: dict[str, list[tuple[Floats, str]]] = {}
    for name, _ in segments:
        video, segment = _parse(name)
        videos.setdefault(video, []).append((segment, next(tokens)))
    return [
        _Pair(video, overlap, text, reference)
        for video, segment, text in written
        for other, reference in videos[video]
        if (overlap := compute_overlap(segment, other)) >= BOUNDS[0]
    ]


def _parse(name: str) -> tuple[str, Floats]:
    """Returns the video of an item, and its segment (start, end)."""
    video, _, seconds = name.rpartition("@")
    return video, np.array([float(each) for each in seconds.split("-")])


def compute_overlap(first: Floats, second: Floats) -> float:
    """Computes the tIoU of two segments (start, end) in seconds."""
    both = min(first[1], second[1]) - max(first[0], second[0])
    return max(0.0, float(both / (max(first[1], second[1]) - min(first[0], second[0]) + 1e-8)))


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
