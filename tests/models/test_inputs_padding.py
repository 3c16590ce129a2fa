"""Streams of several videos as one batch: what is padding, and what is taken all the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.features import Stream, StreamSpec
from models.inputs import collate

CPU = torch.device("cpu")


def stream(values: Tensor, mask: Tensor | None) -> Stream:
    start = np.arange(len(values), dtype=np.float64)
    return Stream(values, start, start + 1, StreamSpec("n", "w", "p"), mask=mask)


def test_masked_rows_are_left_out() -> None:
    batch = collate([stream(torch.ones(3, 2), torch.tensor([True, True, False]))], CPU)
    assert batch.frame_mask.tolist() == [[True, True, False]]
    assert batch.values[0, :, 0].tolist() == [[1, 1], [1, 1], [0, 0]]


@pytest.mark.parametrize("shape", [(2, 3), (2, 4, 3)])
def test_where_nothing_is_real_all_is_taken(shape: tuple[int, ...]) -> None:
    mask = torch.zeros(shape[0], dtype=torch.bool)
    short, long = stream(torch.ones(shape), mask), stream(torch.ones(5, *shape[1:]), None)
    batch = collate([short, long], CPU)
    assert batch.frame_mask.tolist() == [[True, True, False, False, False], [True] * 5]
    assert batch.region_mask[0, :2].all()
    assert batch.values[0].sum() == torch.ones(shape).sum()
    assert not batch.values[0, 2:].any()


def test_zeros_where_nothing_is_real_stay_hidden() -> None:
    """A video without sound has one row of zeros; one may be without any box."""
    sound = stream(torch.zeros(1, 3), torch.zeros(1, dtype=torch.bool))
    boxes = stream(torch.ones(2, 4, 3), torch.zeros(2, 4, dtype=torch.bool))
    assert not collate([sound], CPU).frame_mask.any()
    assert not collate([boxes], CPU).frame_mask.any()


def test_a_frame_without_a_box_is_padding_beside_one_that_has_some() -> None:
    mask = torch.tensor([[True, False], [False, False]])
    batch = collate([stream(torch.ones(2, 2, 3), mask)], CPU)
    assert batch.frame_mask.tolist() == [[True, False]]
    assert batch.region_mask.tolist() == [mask.tolist()]
