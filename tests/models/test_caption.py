"""Attention as the document that the API answers with, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from models.caption import Attention

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
        extras={"branch": weights(WORDS, 1, 2)},
    )


@pytest.mark.parametrize("kind", ["grid", "boxes", "none"])
def test_round_trip_through_json(kind: str) -> None:
    ours = attention(kind)
    back = Attention.from_json(json.loads(json.dumps(ours.to_json())))
    assert (back.words, back.grid) == (ours.words, ours.grid)
    for name, digits in {"times": 4, "temporal": 5, "spatial": 5, "boxes": 4}.items():
        wanted, got = getattr(ours, name), getattr(back, name)
        assert (wanted is None) == (got is None)
        if wanted is not None:
            np.testing.assert_allclose(got, wanted, atol=0.6 * 10**-digits)
    np.testing.assert_allclose(back.extras["branch"], ours.extras["branch"], atol=1e-5)


def test_the_document_says_what_kind_of_places_it_weighs() -> None:
    grid, boxes, none = (attention(kind).to_json() for kind in ("grid", "boxes", "none"))
    assert {key: grid["spatial"][key] for key in ("kind", "rows", "columns")} == {
        "kind": "grid",
        "rows": 2,
        "columns": 3,
    }
    assert boxes["spatial"].keys() == {"kind", "weights", "boxes"}
    assert none["spatial"] is None
    assert np.shape(grid["spatial"]["weights"]) == (WORDS, FRAMES, 6)


def test_rounding_keeps_sums_at_one_to_the_eye() -> None:
    sums = np.sum(attention("grid").to_json()["spatial"]["weights"], axis=-1)
    np.testing.assert_allclose(sums, 1, atol=1e-4)
