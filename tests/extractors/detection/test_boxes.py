"""Boxes moved by deltas, cut to the picture, and the anchors that they start from, number by number."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torchvision.models.detection._utils import BoxCoder

from extractors.detection.boxes import (
    MOST_GROWTH,
    apply_deltas,
    have_area,
    make_cell_anchors,
    place_anchors,
)

Weights = tuple[float, float, float, float]
PLAIN: Weights = (1.0, 1.0, 1.0, 1.0)
LAST_STAGE: Weights = (10.0, 10.0, 5.0, 5.0)


def some_boxes(count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    corner = 200 * torch.rand(count, 2, generator=generator)
    return torch.cat([corner, corner + 1 + 100 * torch.rand(count, 2, generator=generator)], 1)


def some_deltas(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def moved_by_hand(box: list[float], delta: list[float], weights: Weights, extra: float) -> list[float]:
    """Girshick et al., appendix C, for one box."""
    dx, dy, dw, dh = (value / weight for value, weight in zip(delta, weights, strict=True))
    width, height = box[2] - box[0] + extra, box[3] - box[1] + extra
    x, y = box[0] + width / 2 + dx * width, box[1] + height / 2 + dy * height
    width *= math.exp(min(dw, math.log(1000 / 16)))
    height *= math.exp(min(dh, math.log(1000 / 16)))
    return [x - width / 2, y - height / 2, x + width / 2, y + height / 2]


@pytest.mark.parametrize("weights", [PLAIN, LAST_STAGE])
@pytest.mark.parametrize("extra", [0, 1])
def test_moves_are_those_of_the_formula(weights: Weights, extra: float) -> None:
    boxes, deltas = some_boxes(7, 1), some_deltas(7, 3 * 4, seed=2)
    deltas[0, 2] = 50.0  # beyond the most growth, whichever the weights
    got = apply_deltas(boxes, deltas, weights, extra)
    assert got.shape == (7, 12)
    by_hand = [
        moved_by_hand(box, delta, weights, extra)
        for box, of_box in zip(boxes.tolist(), deltas.reshape(7, 3, 4).tolist(), strict=True)
        for delta in of_box
    ]
    torch.testing.assert_close(got.reshape(-1, 4), torch.tensor(by_hand), rtol=1e-5, atol=1e-3)


def test_moves_are_torchvisions() -> None:
    boxes, deltas = some_boxes(9, 3), some_deltas(9, 2 * 4, seed=4)
    theirs = BoxCoder(LAST_STAGE).decode_single(deltas, boxes)
    torch.testing.assert_close(apply_deltas(boxes, deltas, LAST_STAGE), theirs.reshape(9, -1))


@pytest.mark.parametrize("weights", [PLAIN, LAST_STAGE])
def test_the_deltas_between_two_boxes_move_one_to_the_other(weights: Weights) -> None:
    start, goal = some_boxes(20, 5), some_boxes(20, 6)
    deltas = BoxCoder(weights).encode_single(goal, start)
    torch.testing.assert_close(apply_deltas(start, deltas, weights), goal, rtol=1e-4, atol=1e-3)


def test_growth_has_an_end_and_shrinking_has_none() -> None:
    box = torch.tensor([[0.0, 0.0, 16.0, 16.0]])
    wide = apply_deltas(box, torch.tensor([[0.0, 0.0, 9.0, -20.0]]), PLAIN)[0]
    assert wide[2] - wide[0] == pytest.approx(1000)
    assert wide[3] - wide[1] < 1e-5
    assert math.exp(MOST_GROWTH) == pytest.approx(62.5)


def test_boxes_that_are_cut_to_nothing_have_no_area() -> None:
    cut = torch.tensor([[0.0, 2, 30, 20], [3, 4, 5, 6], [40, 0, 40, 10], [7, 0, 8, 0]])
    assert have_area(cut).tolist() == [True, True, False, False]


def test_anchors_of_a_cell_have_the_size_and_the_ratio() -> None:
    sizes, ratios = (32.0, 64.0), (0.5, 1.0, 2.0)
    cell = make_cell_anchors(sizes, ratios)
    width, height = cell[:, 2] - cell[:, 0], cell[:, 3] - cell[:, 1]
    torch.testing.assert_close((width * height).sqrt(), torch.tensor(sizes).repeat_interleave(3))
    torch.testing.assert_close(height / width, torch.tensor(ratios).repeat(2))
    torch.testing.assert_close(cell[:, :2], -cell[:, 2:])


@pytest.mark.parametrize("offset", [0.0, 0.5])
def test_anchors_go_by_row_then_column_then_size(offset: float) -> None:
    cell = make_cell_anchors((32.0, 64.0), (1.0,))
    placed = place_anchors(2, 3, 16, cell, offset)
    by_hand = [
        [x - half, y - half, x + half, y + half]
        for y in (16 * offset, 16 + 16 * offset)
        for x in (16 * offset, 16 + 16 * offset, 32 + 16 * offset)
        for half in (16.0, 32.0)
    ]
    torch.testing.assert_close(placed, torch.tensor(by_hand))
