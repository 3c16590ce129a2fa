"""Regions: the boxes that a detector keeps of a picture, what it calls them, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torchvision.ops import batched_nms

from extractors.detection.boxes import clipped, solid
from extractors.windowing.batching import WindowRows


@dataclass(frozen=True)
class DetectionRule:
    """score: the least; overlap: of two boxes of a class that are one; most: boxes kept."""

    score: float = 0.05
    overlap: float = 0.5
    most: int = 100


@dataclass(frozen=True, eq=False)
class Regions:
    """Best first. boxes: (K, 4) in the picture's pixels; scores, classes: (K,); features: (K, C);
    attributes: (K, A) their probabilities, or None where the detector knows none."""

    boxes: Tensor
    scores: Tensor
    classes: Tensor
    features: Tensor
    attributes: Tensor | None = None


def detect(
    boxes: Tensor, scores: Tensor, size: tuple[int, int], rule: DetectionRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (D, 4), scores (D,) and classes (D,) from boxes (N, C, 4) and scores (N, C) of each class."""
    boxes = clipped(boxes, *size)
    row, kind = torch.nonzero((scores > rule.score) & solid(boxes), as_tuple=True)
    box, score = boxes[row, kind], scores[row, kind]
    kept = batched_nms(box, score, kind, rule.overlap)[: rule.most]
    return box[kept], score[kept], kind[kept]


def rows(found: Sequence[Regions], size: tuple[int, int], count: int, things: int) -> dict[str, WindowRows]:
    """What was found in pictures of that height and width, ``count`` boxes of each: the best, then zeros.

    By the ending of their stream's name: "" features (T, count, C); "_scores" (T, count, things), a box's
    score in the column of its class; "_attributes" (T, count, A) where the detector says any. float16.
    """
    kept = [cut(regions, count) for regions in found]
    height, width = size
    sides = found[0].boxes.new_tensor([width, height, width, height])
    boxes = torch.stack([filled(regions.boxes / sides, count) for regions in kept]).float().clamp(0, 1)
    places = torch.arange(count, device=boxes.device)
    mask = torch.stack([places < len(regions.boxes) for regions in kept])
    values = {"": torch.stack([filled(regions.features, count) for regions in kept])}
    values["_scores"] = torch.stack([filled(in_columns(regions, things), count) for regions in kept])
    said = [regions.attributes for regions in kept if regions.attributes is not None]
    if len(said) == len(kept):
        values["_attributes"] = torch.stack([filled(of_one, count) for of_one in said])
    return {ending: WindowRows(value.half(), boxes, mask) for ending, value in values.items()}


def cut(regions: Regions, count: int) -> Regions:
    """The best of them."""
    said = None if regions.attributes is None else regions.attributes[:count]
    best = (regions.boxes[:count], regions.scores[:count], regions.classes[:count], regions.features[:count])
    return Regions(*best, said)


def filled(values: Tensor, count: int) -> Tensor:
    """(K, …) to (count, …), zeros behind."""
    return torch.cat([values, values.new_zeros(count - len(values), *values.shape[1:])])


def in_columns(regions: Regions, things: int) -> Tensor:
    """Scores (K, things), each in the column of its class."""
    columns = regions.scores.new_zeros(len(regions.scores), things)
    return columns.scatter_(1, regions.classes[:, None], regions.scores[:, None])
