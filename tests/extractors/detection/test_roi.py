"""Pooling inside boxes against loops over every sample, and any map on any boxes."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torchvision.ops import roi_align, roi_pool

from extractors.detection.roi import (
    assign_levels,
    roi_align_cells,
    roi_align_pyramid,
)

BOXES = torch.tensor([[3.0, 5, 60, 41], [0, 0, 95, 79], [-9, 20, 17, 200], [40, 30, 44, 33]])
SCALE, SIZE = 1 / 8, 3


def a_map(channels: int = 2, rows: int = 10, columns: int = 12, pictures: int = 1) -> Tensor:
    return torch.randn(pictures, channels, rows, columns, generator=torch.Generator().manual_seed(8))


def sample(plane: Tensor, y: float, x: float) -> float:
    """Between the four cells around a point; up to one cell outside the edge's value, then nothing."""
    rows, columns = plane.shape
    if y < -1 or y > rows or x < -1 or x > columns:
        return 0.0
    y, x = min(max(y, 0.0), rows - 1.0), min(max(x, 0.0), columns - 1.0)
    top, left = int(y), int(x)
    below, right = min(top + 1, rows - 1), min(left + 1, columns - 1)
    upper = plane[top, left] * (left + 1 - x) + plane[top, right] * (x - left)
    lower = plane[below, left] * (left + 1 - x) + plane[below, right] * (x - left)
    return float(upper * (top + 1 - y) + lower * (y - top))


def align_by_hand(plane: Tensor, box: list[float], shift: bool, samples: int) -> Tensor:
    """Mask R-CNN's average of samples in each bin, one at a time."""
    x0, y0, x1, y1 = (edge * SCALE - 0.5 * shift for edge in box)
    # without the shift a box has a whole cell at least
    width, height = (side if shift else max(side, 1.0) for side in (x1 - x0, y1 - y0))
    down, across = (samples or math.ceil(side / SIZE) for side in (height, width))
    bins = torch.zeros(SIZE, SIZE)
    for row, column in product(range(SIZE), repeat=2):
        ys = [y0 + (row + (i + 0.5) / down) * height / SIZE for i in range(down)]
        xs = [x0 + (column + (j + 0.5) / across) * width / SIZE for j in range(across)]
        bins[row, column] = sum(sample(plane, y, x) for y in ys for x in xs) / (len(ys) * len(xs))
    return bins


@pytest.mark.parametrize("shift", [True, False])
@pytest.mark.parametrize("samples", [0, 2])
def test_align_is_the_average_of_its_samples(shift: bool, samples: int) -> None:
    grid = a_map()
    got = roi_align(grid, [BOXES], SIZE, SCALE, samples, shift)
    for box, bins in zip(BOXES.tolist(), got, strict=True):
        by_hand = torch.stack([align_by_hand(plane, box, shift, samples) for plane in grid[0]])
        torch.testing.assert_close(bins, by_hand, rtol=1e-4, atol=1e-5)


def pool_by_hand(plane: Tensor, box: list[float]) -> Tensor:
    """Fast R-CNN's largest value of each bin of a box of whole cells; 0 of a bin outside the map."""
    x0, y0, x1, y1 = (math.floor(edge * SCALE + 0.5) for edge in box)
    bins = torch.zeros(SIZE, SIZE)
    for row, column in product(range(SIZE), repeat=2):
        of_row, of_column = cells_of(row, y0, y1, plane.shape[0]), cells_of(column, x0, x1, plane.shape[1])
        if len(of_row) and len(of_column):
            bins[row, column] = max(float(plane[y, x]) for y in of_row for x in of_column)
    return bins


def cells_of(place: int, first: int, last: int, count: int) -> range:
    """Along one axis the cells of a map that a bin of a box from cell ``first`` to ``last`` has."""
    step = max(last - first + 1, 1) / SIZE
    edges = (first + math.floor(place * step), first + math.ceil((place + 1) * step))
    return range(*(min(max(edge, 0), count) for edge in edges))


def test_max_pool_is_the_largest_of_whole_cells() -> None:
    grid = a_map()
    got = roi_pool(grid, [BOXES], SIZE, SCALE)
    for box, bins in zip(BOXES.tolist(), got, strict=True):
        torch.testing.assert_close(bins, torch.stack([pool_by_hand(plane, box) for plane in grid[0]]))


def test_a_box_of_224_pixels_is_of_level_four() -> None:
    sides = torch.tensor([10.0, 111.9, 112.1, 223.9, 224.1, 447.9, 448.1, 5000.0])
    boxes = torch.stack([sides * 0, sides * 0, sides, sides], 1)
    assert assign_levels(boxes, 2, 5).tolist() == [2, 2, 3, 3, 4, 4, 5, 5]


def test_each_box_is_pooled_on_its_own_level_and_keeps_its_place() -> None:
    maps = [torch.full((2, 1, 512 >> level, 512 >> level), float(level)) for level in range(2, 6)]
    first = torch.tensor([[0.0, 0, 300, 300], [5, 5, 60, 60]])
    second = torch.tensor([[0.0, 0, 500, 500], [9, 9, 140, 140], [1, 1, 300, 260]])
    pooled = roi_align_pyramid(maps, 2, [first, second], 7)
    assert pooled.shape == (5, 1, 7, 7)
    # flat maps tell the level; a box that ends before the map's edge sees nothing of what is outside
    assert pooled.amax((1, 2, 3)).tolist() == [4, 2, 5, 3, 4]
    alone = roi_align_pyramid(maps, 2, [first, second[:0]], 7)
    torch.testing.assert_close(alone, pooled[:2])


def test_any_map_on_any_boxes() -> None:
    """A box around cells is their mean, around one cell the cell, whatever the picture's shape."""
    grid = a_map(3, 4, 5, pictures=2).permute(0, 2, 3, 1)
    boxes = torch.tensor([[0.0, 0, 1, 1], [0.2, 0.25, 0.4, 0.5], [0.4, 0.5, 1, 1]]).expand(2, 3, 4)
    rows = roi_align_cells(grid, boxes)
    assert rows.shape == (2, 3, 3)
    torch.testing.assert_close(rows[:, 0], grid.mean((1, 2)))
    torch.testing.assert_close(rows[:, 1], grid[:, 1, 1])
    torch.testing.assert_close(rows[:, 2], grid[:, 2:, 2:].mean((1, 2)))
