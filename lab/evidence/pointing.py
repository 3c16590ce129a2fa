"""The pointing game: does a word's heaviest cell lie in a box of the thing that the word names?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extractors.networks.labels import COCO_80
from lab.evidence.clips import Things
from models.caption import AttentionDocument, GridAttention

PEOPLE = """
man woman boy girl person people men women child children kid baby lady guy player group crowd
""".split()  # noqa: SIM905
#: Words that name a thing of COCO by another name than its own.
OTHER_NAMES = {
    **dict.fromkeys(PEOPLE, "person"),
    "bike": "bicycle",
    "motorbike": "motorcycle",
    "plane": "airplane",
    "puppy": "dog",
    "television": "tv",
    "table": "dining table",
    "phone": "cell phone",
    "ball": "sports ball",
}


@dataclass(frozen=True)
class Pointing:
    """Holds how one word was placed. hit: whether its heaviest cell's middle lies in a box of its thing.
    chance: the share of the moment's cells of which that is true. middle: whether the middle one is such.
    names_place: whether its evidence names a place."""

    word: str
    hit: bool
    chance: float
    middle: bool
    names_place: bool


def name_thing(word: str) -> str | None:
    """Finds the class of COCO that a word names, in its singular or plural; None for any other word."""
    for each in (word, word.removesuffix("s"), word.removesuffix("es")):
        if (name := OTHER_NAMES.get(each, each)) in COCO_80:
            return name
    return None


def point(document: AttentionDocument, things: Things) -> list[Pointing]:
    """Plays the game with each word that names a thing which the detector sees at the word's moment.

    document: with the maps in question at its top (``AttentionDocument.shown``).
    """
    return [
        pointing
        for word in range(len(document.words))
        if (pointing := _point_word(document, word, things)) is not None
    ]


def _point_word(document: AttentionDocument, word: int, things: Things) -> Pointing | None:
    thing, moment = name_thing(document.words[word]), document.find_drawn_moment(word)
    spatial = document.spatial
    if thing is None or moment is None or not isinstance(spatial, GridAttention):
        return None
    cells = (spatial.weights[word] or [None] * len(document.times))[moment]
    boxes = _find_boxes(things, document.times[moment], thing)
    if cells is None or not len(boxes):
        return None
    inside = _find_inside(spatial, boxes)
    return Pointing(
        document.words[word],
        hit=bool(inside[int(np.argmax(cells))]),
        chance=float(inside.mean()),
        middle=bool(inside[len(inside) // 2]),
        names_place=document.find_places(word, moment) is not None,
    )


def _find_boxes(things: Things, moment: Sequence[float], thing: str) -> NDArray[np.float64]:
    """Finds (K, 4) boxes in the frame nearest to the beginning of a moment, which is when it was shown."""
    frame = int(np.abs(things.times - moment[0]).argmin())
    return things.boxes[frame].get(thing, np.empty((0, 4)))


def _find_inside(spatial: GridAttention, boxes: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Finds (N,) whether a cell's middle lies in any box."""
    rows, columns = (np.convolve(edges, (0.5, 0.5), "valid") for edges in spatial.edges())
    y, x = (each.reshape(-1, 1) for each in np.meshgrid(rows, columns, indexing="ij"))
    x0, y0, x1, y1 = boxes.T
    inside: NDArray[np.bool_] = ((x0 <= x) & (x <= x1) & (y0 <= y) & (y <= y1)).any(1)
    return inside
