"""Attention as the document that the API answers with."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest

from models.caption import Attention
from models.extras import Extras

WORDS, FRAMES = 3, 4


def weights(*shape: int) -> np.ndarray:
    drawn = np.random.default_rng(sum(shape)).random(shape)
    return np.asarray(drawn / drawn.sum(-1, keepdims=True))


def attention(kind: str) -> Attention:
    return Attention(
        words=("a", "dog", "runs"),
        times=np.array([[t / 3, (t + 1) / 3] for t in range(FRAMES)]),
        temporal=weights(WORDS, FRAMES),
        spatial=None if kind == "none" else weights(WORDS, FRAMES, 6),
        grid=(2, 3) if kind == "grid" else None,
        boxes=np.random.default_rng(0).random((FRAMES, 6, 4)) if kind == "boxes" else None,
        extras=Extras(branch=weights(WORDS, 1, 2)),
    )


@pytest.mark.parametrize("kind", ["grid", "boxes", "none"])
def test_the_document_has_every_number_to_a_few_digits(kind: str) -> None:
    ours = attention(kind)
    document = json.loads(json.dumps(ours.to_json()))
    assert document["words"] == list(ours.words)
    np.testing.assert_allclose(document["times"], ours.times, atol=0.6e-4)
    np.testing.assert_allclose(document["temporal"], ours.temporal, atol=0.6e-5)
    assert ours.extras.branch is not None
    np.testing.assert_allclose(document["extras"]["branch"], ours.extras.branch, atol=0.6e-5)
    if ours.spatial is not None:
        np.testing.assert_allclose(document["spatial"]["weights"], ours.spatial, atol=0.6e-5)
    if ours.boxes is not None:
        np.testing.assert_allclose(document["spatial"]["boxes"], ours.boxes, atol=0.6e-4)


def test_a_word_without_attention_is_null() -> None:
    ours = attention("grid")
    ours.temporal[0] = 0
    document = ours.to_json()
    assert [row is None for row in document["temporal"]] == [True, False, False]
    assert [rows is None for rows in document["spatial"]["weights"]] == [True, False, False]


def test_what_a_captioner_does_not_have_is_null() -> None:
    extras = attention("none").to_json()["extras"]
    assert extras.keys() == {field.name for field in fields(Extras)}
    assert [name for name, value in extras.items() if value is not None] == ["branch"]


def test_the_document_says_what_kind_of_places_it_weighs() -> None:
    grid, boxes, none = (attention(kind).to_json() for kind in ("grid", "boxes", "none"))
    assert {key: grid["spatial"][key] for key in ("kind", "rows", "columns", "view")} == {
        "kind": "grid",
        "rows": 2,
        "columns": 3,
        "view": [0, 0, 1, 1],
    }
    assert boxes["spatial"].keys() == {"kind", "weights", "boxes"}
    assert none["spatial"] is None
    assert np.shape(grid["spatial"]["weights"]) == (WORDS, FRAMES, 6)


def test_rounding_keeps_sums_at_one_to_the_eye() -> None:
    sums = np.sum(attention("grid").to_json()["spatial"]["weights"], axis=-1)
    np.testing.assert_allclose(sums, 1, atol=1e-4)
