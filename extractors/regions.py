"""Regions: the boxes that a detector keeps of a picture, what it calls them, and what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import batched_nms

from extractors.boxes import clipped, solid
from extractors.features import Frames, Stream, StreamSpec


@dataclass(frozen=True)
class DetectionRule:
    """score: the least; overlap: of two boxes of a class that are one; most: boxes kept."""

    score: float = 0.05
    overlap: float = 0.5
    most: int = 100


@dataclass(frozen=True, eq=False)
class Regions:
    """Best first. boxes: (K, 4) in the picture's pixels; scores, classes: (K,); features: (K, C)."""

    boxes: Tensor
    scores: Tensor
    classes: Tensor
    features: Tensor


def detect(
    boxes: Tensor, scores: Tensor, size: tuple[int, int], rule: DetectionRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (D, 4), scores (D,) and classes (D,) from boxes (N, C, 4) and scores (N, C) of each class."""
    boxes = clipped(boxes, *size)
    row, kind = torch.nonzero((scores > rule.score) & solid(boxes), as_tuple=True)
    box, score = boxes[row, kind], scores[row, kind]
    kept = batched_nms(box, score, kind, rule.overlap)[: rule.most]
    return box[kept], score[kept], kind[kept]


def fixed(
    found: Sequence[Regions], count: int, sizes: Sequence[tuple[int, int]]
) -> tuple[Tensor, Tensor, Tensor]:
    """features (T, count, C), boxes (T, count, 4) in [0, 1] and mask (T, count): the best, then zeros."""
    features = found[0].features.new_zeros(len(found), count, found[0].features.shape[1])
    boxes, mask = torch.zeros(len(found), count, 4), torch.zeros(len(found), count, dtype=torch.bool)
    for t, (regions, (height, width)) in enumerate(zip(found, sizes, strict=True)):
        kept = min(count, len(regions.boxes))
        features[t, :kept] = regions.features[:kept]
        boxes[t, :kept] = regions.boxes[:kept].cpu() / torch.tensor([width, height, width, height])
        mask[t, :kept] = True
    return features, boxes.clamp(0, 1), mask


def stream(video: Frames, found: Sequence[Regions], count: int, spec: StreamSpec) -> Stream:
    """The regions of each frame in the frame's own pixels as a stream; a row lasts until the next."""
    size = (video.pixels.shape[1], video.pixels.shape[2])
    features, boxes, mask = fixed(found, count, [size] * len(found))
    end: NDArray[np.float64] = np.append(video.pts[1:], video.duration)
    return Stream(features.cpu(), video.pts, end, spec, boxes=boxes, mask=mask)
