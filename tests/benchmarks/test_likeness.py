"""What the benchmarks say two ways of computing have in common."""

from __future__ import annotations

import math

import pytest
import torch

from benchmarks.gpu.networks import judge
from benchmarks.support.likeness import Likeness, compare
from extractors.windowing.window_rows import WindowRows

LOGITS = torch.tensor([[1.0, 2.0, 4.0], [3.0, 1.0, 0.0]])
BOXES = torch.tensor([[[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]]])
SCORES = torch.tensor([[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]])
MASK = torch.tensor([[True, True, False]])


def test_a_class_that_changes_is_counted_and_the_largest_difference_kept() -> None:
    changed = LOGITS + torch.tensor([[0.0, 2.4, 0.0], [0.0, 0.0, 0.0]])
    found = compare({"net_logits": WindowRows(changed)}, {"net_logits": WindowRows(LOGITS)})
    assert (found.rows, found.classes_kept) == (2, 1)
    assert found.difference == pytest.approx(2.4 / 4)
    assert 0.8 < found.cosine < 1


def test_rows_of_zeros_are_alike_and_numbers_that_are_none_are_not() -> None:
    zeros = {"net": WindowRows(torch.zeros(2, 3))}
    assert compare(zeros, zeros) == Likeness(0.0, 1.0)
    broken = compare({"net": WindowRows(torch.full((2, 3), math.nan))}, {"net": WindowRows(LOGITS)})
    assert (broken.difference, broken.cosine) == (math.inf, -1.0)
    assert judge(broken, "fp16") == "FAULT: not finite"
    assert judge(Likeness() + broken, "fp16") == "FAULT: not finite"


def test_boxes_are_found_again_in_another_order_and_a_lost_one_is_counted() -> None:
    exact = {"net": WindowRows(SCORES, BOXES, MASK)}
    turned = {"net": WindowRows(SCORES[:, [1, 0, 2]], BOXES[:, [1, 0, 2]] + 0.01, MASK)}
    assert compare(turned, exact) == Likeness(0.0, 1.0, boxes=2, boxes_kept=2)
    lost = {"net": WindowRows(SCORES, BOXES, torch.tensor([[True, False, False]]))}
    assert compare(lost, exact) == Likeness(0.0, 1.0, boxes=2, boxes_kept=1)


def test_of_two_classes_over_one_place_each_meets_its_own() -> None:
    one_place = {"net": WindowRows(SCORES, BOXES[:, [0, 0, 2]], MASK)}
    assert compare(one_place, one_place).cosine == 1
