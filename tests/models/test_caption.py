"""Attention as the document that the API answers with."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import numpy as np
import pytest

from models.caption import SPREAD_ENTROPY, Attention, Extras, normalised_entropy, parts_of_clip

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


def test_edges_say_where_cells_lie_in_the_picture() -> None:
    """Even within the view unless the captioner says otherwise."""
    ours = replace(attention("grid"), view=(0.25, 0.0, 0.75, 1.0))
    even = ours.to_json()["spatial"]
    assert even["row_edges"] == [0, 0.5, 1]
    assert even["column_edges"] == pytest.approx([0.25, 0.41667, 0.58333, 0.75])
    uneven = replace(ours, edges=((0.0, 1 / 3, 1.0), (0.0, 0.2, 0.6, 1.0))).to_json()["spatial"]
    assert (uneven["row_edges"], uneven["column_edges"]) == ([0, 0.33333, 1], [0, 0.2, 0.6, 1])


@pytest.mark.parametrize(
    ("times", "parts"),
    [
        # eight frames and the like: each lies in the middle of its part
        ([[0.5, 1.5], [1.5, 2.5], [2.5, 3.0]], [[0, 1], [1, 2], [2, 3]]),
        # a still picture, and frames that are taken from the begin on, are shown as long as they stand
        ([[0.0, 3.0]], [[0, 3]]),
        ([[0.0, 2.0], [2.0, 5.0]], [[0, 2], [2, 5]]),
        # windows that overlap
        ([[0.0, 2.0], [1.0, 3.0]], [[0, 2], [1, 3]]),
        # one frame from the middle
        ([[1.0, 2.0]], [[0, 2]]),
        ([[0.5, 1.0], [2.0, 3.0]], [[0.5, 1.0], [2.0, 3.0]]),
    ],
)
def test_moments_stand_for_parts_of_the_clip(times: list[list[float]], parts: list[list[float]]) -> None:
    np.testing.assert_allclose(parts_of_clip(np.array(times)), parts)


def test_the_parts_of_sampled_frames_run_from_begin_to_end_without_a_gap() -> None:
    times = np.array([0.36, 1.12, 1.84, 2.6, 3.36, 4.12, 4.84, 5.6, 6.0])
    parts = parts_of_clip(np.stack([times[:-1], times[1:]], 1))
    assert (parts[0, 0], parts[-1, 1]) == (0, 6)
    np.testing.assert_array_equal(parts[1:, 0], parts[:-1, 1])
    np.testing.assert_allclose(parts[:, 1] - parts[:, 0], 0.75, atol=0.03)


def test_nearly_even_weights_are_called_spread() -> None:
    ours = attention("none")
    ours.temporal[:] = [[0.25] * 4, [0.97, 0.01, 0.01, 0.01], [0.0] * 4]
    document = ours.to_json()
    assert document["entropy"] == [1, pytest.approx(0.12, abs=0.01), None]
    assert document["spread"] == [True, False, False]


def test_entropy_is_of_the_moments_that_there_are() -> None:
    assert normalised_entropy(np.array([1.0])) is None
    assert normalised_entropy(np.array([1.0, 0.0, 0.0])) == 0
    assert normalised_entropy(np.full(64, 1 / 64)) == 1


def test_the_heaviest_of_eight_that_are_spread_has_about_two_even_shares() -> None:
    def entropy(share: float) -> float:
        found = normalised_entropy(np.array([share, *[(1 - share) / 7] * 7]))
        assert found is not None
        return found

    assert entropy(1.9 / 8) >= SPREAD_ENTROPY > entropy(2.1 / 8)


def test_rounding_keeps_sums_at_one_to_the_eye() -> None:
    sums = np.sum(attention("grid").to_json()["spatial"]["weights"], axis=-1)
    np.testing.assert_allclose(sums, 1, atol=1e-4)
