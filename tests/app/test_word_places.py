"""A word's moment and place are decided once: JSON, picture, client and exports show the same."""

from __future__ import annotations

import json

import pytest
from PIL import Image, ImageChops

from app.api.page_files import STATIC
from app.attention_picture.poster import order_words
from app.attention_picture.word_tiles import PictureSource, list_tile_moments, write_below
from app.documents.segments import FilmDocument, SegmentDocument
from models.caption import AttentionDocument
from reelword import Attention

PERSON, CUP = [0.0, 0.0, 0.5805, 1.0], [0.2342, 0.0012, 0.762, 0.9763]
#: Of the page's first example: by word its start and end, the time of its frame, its label and its box.
SHOTS = {
    "person": (2.0, 3.0, 2.7333, "person", PERSON),
    "drinking": (1.0, 2.0, 1.7333, "cup", CUP),
    "cup": (1.0, 2.0, 1.7333, "cup", CUP),
    "coffee": (1.4667, 1.9667, 1.7333, "espresso", None),
}
EXAMPLE = json.loads((STATIC / "examples/shots.json").read_text())
DOCUMENT = AttentionDocument.model_validate(EXAMPLE["attention"])
NUMBERS = {word: DOCUMENT.words.index(word) for word in SHOTS}


@pytest.mark.parametrize("word", SHOTS)
def test_a_word_has_one_moment_and_one_place(word: str) -> None:
    start, end, _, label, box = SHOTS[word]
    place = json.loads(DOCUMENT.model_dump_json())["located"][NUMBERS[word]]
    assert (place["start"], place["end"], place["label"], place["box"]) == (start, end, label, box)
    told = Attention.model_validate(EXAMPLE["attention"]).by_word[NUMBERS[word]]
    assert (told.start, told.end, told.label, told.box and list(told.box)) == (start, end, label, box)
    segment = SegmentDocument(start=0, end=4, representative=2, caption="", captions=[])
    (exported,) = FilmDocument(file="shots.mp4", segments=[segment]).with_words([DOCUMENT]).segments
    assert exported.words is not None
    assert (exported.words[NUMBERS[word]].start, exported.words[NUMBERS[word]].box) == (start, box)


@pytest.mark.parametrize("word", SHOTS)
def test_the_picture_shows_the_same(word: str) -> None:
    *_, time, label, box = SHOTS[word]
    frames = [Image.new("RGB", (64, 36), (90, 90, 90))] * len(EXAMPLE["job"]["sampled"])
    seen = PictureSource(DOCUMENT.shown, frames, EXAMPLE["job"]["sampled"])
    (moment,) = list_tile_moments(seen.attention, NUMBERS[word])
    weights = seen.attention.temporal[NUMBERS[word]]
    assert weights is not None
    assert weights[moment] == max(weights)  # the darkest part of its line
    picture, shown = seen.draw_word(NUMBERS[word], moment, (64, 36))
    assert shown == time
    assert write_below(seen.attention, NUMBERS[word], moment, time) == [f"{time:.1f} s", label]
    outlined, _ = seen.draw_moment(moment, None, (64, 36), box)
    assert box is None or ImageChops.difference(picture, outlined).getbbox() is None


def test_the_clip_has_them_in_the_order_of_their_moments() -> None:
    assert order_words(DOCUMENT) == ["drinking", "cup", "coffee", "person"]


@pytest.mark.parametrize(
    "name", [each["name"] for each in json.loads((STATIC / "examples/index.json").read_text())]
)
def test_examples_carry_what_is_decided_of_them(name: str) -> None:
    attention = json.loads((STATIC / f"examples/{name}.json").read_text())["attention"]
    decided = AttentionDocument.model_validate(attention).located
    assert attention["located"] == [each.model_dump(mode="json") for each in decided]


def test_a_word_that_is_all_along_has_its_labels_time_and_box_or_none() -> None:
    labels = [
        {"moment": 0, "time": 0.0, "end": 2.0, "text": "room", "weight": 0.9},
        {"moment": 1, "time": 2.0, "end": 3.0, "text": "cat", "weight": 0.1, "box": PERSON},
    ]
    part = {"kind": "moments", "name": "labels", "title": "", "words": [labels, []]}
    even = {"temporal": [[0.5, 0.5]] * 2, "moments": [None, None], "boxes": [None, None]}
    spans = [[0.0, 2.0], [2.0, 4.0]]
    document = AttentionDocument.model_validate(
        {"words": ["cat", "here"], "times": spans, "temporal": [None] * 2, "extras": [part], "evidence": even}
    )
    cat, here = (place.model_dump() for place in document.located)
    assert cat == {"moment": 1, "start": 2.0, "end": 3.0, "label": "cat", "box": PERSON}
    assert set(here.values()) == {None}
