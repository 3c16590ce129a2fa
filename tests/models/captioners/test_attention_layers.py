"""The blocks that captioners share: softmax under masks, additive attention, sums over shared memories."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from extractors.features import Stream
from models.captioners.attention_layers import (
    AdditiveAttention,
    BilinearAttention,
    masked_softmax,
    sum_regions,
    weighted_sum,
)
from models.inputs import collate
from tests.models.tiny import SPEC, stream

CPU = torch.device("cpu")


def test_masked_places_get_nothing_and_the_rest_sums_to_one() -> None:
    scores = torch.tensor([[1.0, 50.0, 2.0], [0.0, 0.0, 0.0]])
    mask = torch.tensor([[True, False, True], [False, False, False]])
    weights = masked_softmax(scores, mask)
    odds = torch.tensor([1.0, 2.0]).softmax(0)
    torch.testing.assert_close(weights[0], torch.tensor([odds[0], 0.0, odds[1]]))
    assert weights[1].tolist() == [0, 0, 0]


def test_softmax_is_computed_in_float32() -> None:
    weights = masked_softmax(torch.tensor([[0.0, 1.0]], dtype=torch.bfloat16), None)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, torch.tensor([[0.0, 1.0]]).softmax(1))


@pytest.mark.parametrize("places", [(4,), (3, 4)])
def test_rows_score_against_their_own_video(places: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    attention = AdditiveAttention(3, 5, 2)
    x, h = torch.randn(2, *places, 5), torch.randn(6, 3)
    scores = attention.score(h, attention.make_keys(x))
    assert scores.shape == (6, *places)
    for row in range(6):
        energy = torch.tanh(attention.W_h(h[row]) + attention.W_x(x[row // 3]))
        torch.testing.assert_close(scores[row], attention.w(energy).squeeze(-1))


def test_weighted_sum_reads_each_rows_own_video() -> None:
    weights, values = torch.rand(4, 3), torch.rand(2, 3, 5)
    expected = torch.stack([weights[row] @ values[row // 2] for row in range(4)])
    torch.testing.assert_close(weighted_sum(weights, values), expected)


def test_streams_without_regions_have_one() -> None:
    times = np.arange(2.0)
    batch = collate([Stream(torch.ones(2, 5).half(), times, times + 1, SPEC)], CPU)
    assert batch.values.shape == (1, 2, 1, 5)
    assert batch.values.dtype == torch.float32


def test_padding_and_masked_regions_are_zero_and_unmarked() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    batch = collate([stream(2, 2, 3, 0, mask=mask), stream(3, 2, 3, 1)], CPU)
    assert batch.region_mask[0].tolist() == [[True, False], [False, False], [False, False]]
    assert batch.frame_mask.tolist() == [[True, False, False], [True, True, True]]
    assert not batch.values[~batch.region_mask].any()
    assert batch.values[batch.region_mask].all()


def test_a_mask_of_frames_covers_all_their_regions() -> None:
    batch = collate([stream(2, 3, 4, 0, mask=torch.tensor([True, False]))], CPU)
    assert batch.region_mask.tolist() == [[[True] * 3, [False] * 3]]


@pytest.mark.parametrize("bias", [True, False])
def test_bilinear_rows_score_against_their_own_video(bias: bool) -> None:
    torch.manual_seed(0)
    attention = BilinearAttention(3, 5, 2, bias=bias)
    if attention.b is not None:
        torch.nn.init.normal_(attention.b)
    x, h = torch.randn(2, 3, 4, 5), torch.randn(6, 3)
    scores = attention.score(h, attention.make_keys(x))
    for row in range(6):
        product = attention.W_h(h[row]) * attention.W_x(x[row // 3])
        energy = torch.tanh(product if attention.b is None else product + attention.b)
        torch.testing.assert_close(scores[row], attention.w(energy).squeeze(-1))


@pytest.mark.parametrize("kind", [AdditiveAttention, BilinearAttention])
@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_scores_without_gradient_are_those_with_it(
    kind: type[AdditiveAttention | BilinearAttention], size: float
) -> None:
    torch.manual_seed(0)
    attention = kind(6, 5, 8)
    keys, h = size * attention.make_keys(torch.randn(2, 3, 4, 5)), torch.randn(6, 6)
    with torch.no_grad():
        found, kept = attention.score(h, keys), keys.clone()
    exact = attention.double().score(h.double(), keys.double())
    torch.testing.assert_close(found.double(), exact, atol=1e-6, rtol=0)
    assert torch.equal(keys, kept)


def test_a_query_of_zeros_makes_all_places_equal() -> None:
    attention = BilinearAttention(3, 5, 2)
    scores = attention.score(torch.zeros(1, 3), attention.make_keys(torch.randn(1, 4, 5)))
    torch.testing.assert_close(scores, scores[:, :1].expand(1, 4))


def test_regions_are_summed_in_each_frame() -> None:
    weights, x = torch.rand(4, 3, 2), torch.randn(2, 3, 2, 5)
    sums = sum_regions(weights, x)
    for row in range(4):
        torch.testing.assert_close(sums[row], (weights[row].unsqueeze(2) * x[row // 2]).sum(1))
