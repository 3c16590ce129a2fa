"""Selects and pads regions: boxes of a picture, what they are called, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import batched_nms

from extractors.detection.boxes import clip_boxes, have_area
from extractors.windowing.window_rows import WindowRows


@dataclass(frozen=True)
class DetectionRule:
    """Limits which detections are kept.

    score: the least; overlap: of two boxes of a class that are one; most: boxes kept.
    """

    score: float = 0.05
    overlap: float = 0.5
    most: int = 100


@dataclass(frozen=True, eq=False)
class Regions:
    """Holds the regions of one picture, the best first."""

    boxes: Tensor  #: (K, 4) in the picture's pixels
    scores: Tensor  #: (K,), of the regions' classes
    classes: Tensor  #: (K,), places among the detector's names
    features: Tensor  #: (K, C)
    attributes: Tensor | None = None  #: (K, A) their probabilities, or None where the detector knows none


def select_detections(
    boxes: Tensor, scores: Tensor, size: tuple[int, int], rule: DetectionRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Selects boxes by their scores, after suppression within each class.

    Args:
        boxes: (N, C, 4), one for each class, in pixels.
        scores: (N, C).
        size: height and width of the picture, to which boxes are cut.
        rule: how many, and how sure.

    Returns:
        Boxes (D, 4), scores (D,) and classes (D,), the best first.
    """
    boxes = clip_boxes(boxes, *size)
    row, kind = torch.nonzero((scores > rule.score) & have_area(boxes), as_tuple=True)
    box, score = boxes[row, kind], scores[row, kind]
    kept = batched_nms(box, score, kind, rule.overlap)[: rule.most]
    return box[kept], score[kept], kind[kept]


def pad_regions(
    found: Sequence[Regions], size: tuple[int, int], count: int, things: int
) -> dict[str, WindowRows]:
    """Makes rows of streams of the regions of several pictures: the best of each, then zeros.

    Args:
        found: of each picture.
        size: height and width of the pictures, in pixels.
        count: regions a row.
        things: how many classes there are.

    Returns:
        float16 rows by the ending of their stream's name: "" features (T, count, C); "_scores"
        (T, count, things), a box's score in the column of its class; "_attributes" (T, count, A) where the
        detector says any.
    """
    kept = [keep_best(regions, count) for regions in found]
    height, width = size
    sides = found[0].boxes.new_tensor([width, height, width, height])
    boxes = torch.stack([pad_rows(regions.boxes / sides, count) for regions in kept]).float().clamp(0, 1)
    places = torch.arange(count, device=boxes.device)
    mask = torch.stack([places < len(regions.boxes) for regions in kept])
    values = {"": torch.stack([pad_rows(regions.features, count) for regions in kept])}
    values["_scores"] = torch.stack([pad_rows(spread_scores(regions, things), count) for regions in kept])
    attributes = [regions.attributes for regions in kept if regions.attributes is not None]
    if len(attributes) == len(kept):
        values["_attributes"] = torch.stack([pad_rows(row, count) for row in attributes])
    return {ending: WindowRows(value.half(), boxes, mask) for ending, value in values.items()}


def keep_best(regions: Regions, count: int) -> Regions:
    """Keeps the first ``count`` regions."""
    attributes = None if regions.attributes is None else regions.attributes[:count]
    best = (regions.boxes[:count], regions.scores[:count], regions.classes[:count], regions.features[:count])
    return Regions(*best, attributes)


def pad_rows(values: Tensor, count: int) -> Tensor:
    """Pads (K, …) to (count, …), zeros behind."""
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])


def spread_scores(regions: Regions, things: int) -> Tensor:
    """Spreads scores to (K, things), each in the column of its class."""
    columns = regions.scores.new_zeros(len(regions.scores), things)
    return columns.scatter_(1, regions.classes[:, None], regions.scores[:, None])
