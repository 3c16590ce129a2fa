"""Cells of a map lie where the network looked: found by looking which pixels move them."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn

from extractors.preprocessing.images import (
    INCEPTION_V4,
    UNEVEN,
    find_cell_edges,
    make_even_edges,
    map_to_picture,
    pool_edges,
)


def test_most_maps_tile_what_was_seen() -> None:
    assert find_cell_edges("tuned_pair_grid", 4) == make_even_edges(4) == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert all(edges[0] == 0 and edges[-1] == 1 for edges in UNEVEN.values())


def test_a_listed_map_of_another_size_is_not_taken_for_it() -> None:
    assert find_cell_edges("c3d_pool5", 7) == make_even_edges(7)


@pytest.mark.parametrize(
    ("side", "pool", "padding"), [(7, 2, 1), (6, 2, 1), (14, 4, 2), (7, 1, 0), (6, 3, 1), (28, 8, 4)]
)
def test_pooled_cells_cover_what_moves_them(side: int, pool: int, padding: int) -> None:
    pooled = nn.AvgPool1d(pool, pool, padding)
    line = torch.zeros(1, 1, side, requires_grad=True)
    edges = pool_edges(make_even_edges(side), pool, padding)
    cells = pooled(line)[0, 0]
    assert len(edges) == len(cells) + 1
    for number, cell in enumerate(cells):
        (gradient,) = torch.autograd.grad(cell, line, retain_graph=True)
        moved = gradient[0, 0].nonzero().flatten().tolist()
        assert edges[number] == pytest.approx(moved[0] / side)
        assert edges[number + 1] == pytest.approx((moved[-1] + 1) / side)


def test_c3ds_last_pooling_is_what_its_network_does() -> None:
    assert find_cell_edges("c3d_pool5", 4) == pytest.approx(pool_edges(make_even_edges(7), 2, 1))


def test_inceptions_cells_lie_where_its_unpadded_strides_put_them() -> None:
    """The middles by the arithmetic of a stride and a kernel a layer, from picture to map."""
    size, middle, step = 299, 0.5, 1
    for kernel, stride, padding in ((3, 2, 0), (3, 1, 0), (3, 1, 1), (3, 2, 0), (3, 1, 0), *[(3, 2, 0)] * 3):
        middle += ((kernel - 1) / 2 - padding) * step
        size, step = (size + 2 * padding - kernel) // stride + 1, step * stride
    assert size == len(INCEPTION_V4) - 1
    middles = [(middle + step * cell) / 299 for cell in range(size)]
    assert INCEPTION_V4[1:-1] == pytest.approx([(a + b) / 2 for a, b in pairwise(middles)])


def test_edges_of_a_part_lie_in_the_whole() -> None:
    assert map_to_picture(make_even_edges(2), 0.2, 0.6) == pytest.approx((0.2, 0.4, 0.6))
