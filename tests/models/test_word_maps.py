"""Attention as plain numbers: the document that the API answers with."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from extractors.features import Stream
from models.caption import AttentionDocument, BoxAttention, GridAttention, WeightsExplanation
from models.captioner import rounded
from models.captioners.stats.config import StreamConfig
from models.decoding.decode import DecodingOptions
from models.decoding.written_captions import DecodedBatch
from models.word_maps import (
    SPREAD_ENTROPY,
    attention_document,
    box_attention,
    grid_attention,
    normalised_entropy,
    parts_of_clip,
)
from tests.models.tiny import SPEC, stats_config, tiny_stats

WORDS, FRAMES, PLACES = ("a", "dog", "runs"), 4, 6
TIMES = np.array([[t / 3, (t + 1) / 3] for t in range(FRAMES)])


def weights(*shape: int) -> np.ndarray:
    drawn = np.random.default_rng(sum(shape)).random(shape)
    return np.asarray(drawn / drawn.sum(-1, keepdims=True))


TEMPORAL, SPATIAL = weights(len(WORDS), FRAMES), weights(len(WORDS), FRAMES, PLACES)
BOXES, BRANCH = np.random.default_rng(0).random((FRAMES, PLACES, 4)), weights(len(WORDS), 2)


def places(kind: str, temporal: np.ndarray = TEMPORAL) -> GridAttention | BoxAttention | None:
    if kind == "grid":
        return grid_attention(SPATIAL, temporal, (2, 3))
    return box_attention(SPATIAL, temporal, BOXES) if kind == "boxes" else None


def document(kind: str, temporal: np.ndarray = TEMPORAL) -> AttentionDocument:
    part = WeightsExplanation(name="branch", title="Shares", over="choices", words=rounded(BRANCH))
    return attention_document(WORDS, TIMES, temporal, places(kind, temporal), [part])


@pytest.mark.parametrize("kind", ["grid", "boxes", "none"])
def test_the_document_has_every_number_to_a_few_digits(kind: str) -> None:
    ours = json.loads(document(kind).model_dump_json())
    assert ours["words"] == list(WORDS)
    np.testing.assert_allclose(ours["times"], TIMES, atol=0.6e-4)
    np.testing.assert_allclose(ours["temporal"], TEMPORAL, atol=0.6e-5)
    np.testing.assert_allclose(ours["extras"][0]["words"], BRANCH, atol=0.6e-5)
    assert (ours["spatial"] is None) == (kind == "none")
    if kind != "none":
        np.testing.assert_allclose(ours["spatial"]["weights"], SPATIAL, atol=0.6e-5)
    if kind == "boxes":
        np.testing.assert_allclose(ours["spatial"]["boxes"], BOXES, atol=0.6e-4)


def test_a_word_without_attention_is_null() -> None:
    temporal = TEMPORAL.copy()
    temporal[0] = 0
    ours = document("grid", temporal)
    assert ours.spatial is not None
    assert [row is None for row in ours.temporal] == [True, False, False]
    assert [rows is None for rows in ours.spatial.weights] == [True, False, False]


def test_each_member_of_a_part_is_there() -> None:
    (part,) = document("none").model_dump(mode="json")["extras"]
    assert part.keys() == WeightsExplanation.model_fields.keys()
    assert (part["kind"], part["caption"]) == ("weights", None)


def test_the_document_says_what_kind_of_places_it_weighs() -> None:
    grid, boxes, none = (document(kind).model_dump(mode="json") for kind in ("grid", "boxes", "none"))
    assert {key: grid["spatial"][key] for key in ("kind", "rows", "columns", "view")} == {
        "kind": "grid",
        "rows": 2,
        "columns": 3,
        "view": [0, 0, 1, 1],
    }
    assert boxes["spatial"].keys() == {"kind", "weights", "boxes"}
    assert none["spatial"] is None
    assert np.shape(grid["spatial"]["weights"]) == (len(WORDS), FRAMES, PLACES)


def test_edges_say_where_cells_lie_in_the_picture() -> None:
    """Even within the view unless the captioner says otherwise."""
    even = grid_attention(SPATIAL, TEMPORAL, (2, 3), (0.25, 0.0, 0.75, 1.0))
    assert even.row_edges == [0, 0.5, 1]
    assert even.column_edges == pytest.approx([0.25, 0.41667, 0.58333, 0.75])
    edges = ((0.0, 1 / 3, 1.0), (0.0, 0.2, 0.6, 1.0))
    uneven = grid_attention(SPATIAL, TEMPORAL, (2, 3), (0.5, 0.0, 1.0, 1.0), edges)
    assert (uneven.row_edges, uneven.column_edges) == ([0, 0.33333, 1], [0.5, 0.6, 0.8, 1])


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
    ours = document("none", np.array([[0.25] * 4, [0.97, 0.01, 0.01, 0.01], [0.0] * 4]))
    assert ours.entropy == [1, pytest.approx(0.12, abs=0.01), None]
    assert ours.spread == [True, False, False]


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
    ours = grid_attention(SPATIAL, TEMPORAL, (2, 3)).weights
    np.testing.assert_allclose(np.sum(np.array(ours), axis=-1), 1, atol=1e-4)


def test_each_step_of_time_of_a_map_is_a_moment_of_its_own_with_its_own_map() -> None:
    """Of C3D's fourth layer a row has two steps of 7 × 7 cells, which lie behind each other."""
    config = stats_config(StreamConfig(name="c3d_pool4", width=6))
    values = torch.randn(3, 98, 6, generator=torch.Generator().manual_seed(0))
    start = np.array([0.0, 2.0, 4.0])
    stream = {"c3d_pool4": Stream(values, start, start + 2.0, SPEC)}
    options = DecodingOptions(max_length=5, explanation="both")
    batch = DecodedBatch.by(tiny_stats(config), [stream], "c3d_pool4", options)
    steps, attention = batch.hypotheses[0][0].attention, batch.captions(0)[0].attention
    assert steps is not None
    assert steps.spatial is not None
    assert attention is not None
    assert isinstance(attention.spatial, GridAttention)
    assert attention.times == [[second, second + 1.0] for second in range(6)]
    assert (attention.spatial.rows, attention.spatial.columns) == (7, 7)
    whole = steps.temporal[:, :, None] * steps.spatial
    temporal, spatial = np.array(attention.temporal), np.array(attention.spatial.weights)
    np.testing.assert_allclose(spatial.sum(2), 1.0, atol=1e-3)
    ours = (temporal[..., None] * spatial).reshape(whole.shape)
    np.testing.assert_allclose(ours, whole.numpy(), atol=1e-4)
    assert attention.evidence is not None
    assert len(attention.evidence.temporal[0] or []) in (0, 6)
