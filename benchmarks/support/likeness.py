"""How like the exact numbers are those of a faster way: values, directions, classes, boxes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import box_iou

from extractors.windowing.window_rows import WindowRows

#: Two boxes are one that moved a little.
SAME = 0.8


@dataclass(frozen=True)
class Likeness:
    """Of some windows; two are added.

    difference: the largest, as a share of the largest exact value of its stream. cosine: between a row's two
    vectors, the least. rows: that have classes, of which classes_kept have the same likeliest one. boxes: in
    the exact rows, of which boxes_kept have one over them by 0.8.
    """

    difference: float = 0.0
    cosine: float = 1.0
    rows: int = 0
    classes_kept: int = 0
    boxes: int = 0
    boxes_kept: int = 0

    def __add__(self, other: Likeness) -> Likeness:
        return Likeness(
            max(self.difference, other.difference),
            min(self.cosine, other.cosine),
            self.rows + other.rows,
            self.classes_kept + other.classes_kept,
            self.boxes + other.boxes,
            self.boxes_kept + other.boxes_kept,
        )


def compare(fast: Mapping[str, WindowRows], exact: Mapping[str, WindowRows]) -> Likeness:
    """All streams of the same windows."""
    total = Likeness()
    for name, rows in exact.items():
        if rows.boxes is None:
            total += _of_values(fast[name].values.float(), rows.values.float(), name.endswith("_logits"))
        elif not total.boxes:  # a detector's streams are about the same boxes
            total += _of_boxes(fast[name], rows)
    return total


def _of_values(fast: Tensor, exact: Tensor, are_logits: bool) -> Likeness:
    difference = (fast - exact).abs().max() / exact.abs().max().clamp(min=1e-9)
    cosine = torch.cosine_similarity(fast.flatten(1), exact.flatten(1))
    cosine = torch.where((fast == exact).flatten(1).all(1), 1.0, cosine)  # two rows of zeros have none
    worst, least = float(difference.nan_to_num(nan=math.inf)), float(cosine.nan_to_num(nan=-1.0).min())
    if not are_logits:
        return Likeness(worst, least)
    return Likeness(worst, least, len(exact), int((fast.argmax(1) == exact.argmax(1)).sum()))


def _of_boxes(fast: WindowRows, exact: WindowRows) -> Likeness:
    """What is in boxes is compared where both have the box: their order may change by a hair. Of several
    over one place, as a thing that may be of two classes has, the likest is meant."""
    total = Likeness()
    for t in range(len(exact.values)):
        (boxes, values), (own_boxes, own_values) = _real(exact, t), _real(fast, t)
        total += Likeness(boxes=len(boxes))
        if len(boxes) and len(own_boxes):
            alike = torch.cosine_similarity(values[:, None], own_values[None], dim=2)
            cosine, place = torch.where(box_iou(boxes, own_boxes) >= SAME, alike, -2.0).max(1)
            same = cosine > -2
            total += Likeness(boxes_kept=int(same.sum()))
            if same.any():
                total += _of_values(own_values[place[same]], values[same], are_logits=False)
    return total


def _real(rows: WindowRows, t: int) -> tuple[Tensor, Tensor]:
    """Boxes (K, 4) and values (K, C) of one frame, the padding left out."""
    assert rows.boxes is not None
    real = torch.ones(rows.boxes.shape[1], dtype=torch.bool) if rows.mask is None else rows.mask[t]
    return rows.boxes[t][real].float(), rows.values[t][real].float()
