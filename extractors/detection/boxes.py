"""Boxes x0 y0 x1 y1 and the numbers that move them (Girshick et al., 2014, arXiv:1311.2524, appendix C)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

# Anchors: the boxes that a region proposal network corrects, the same at every cell of a map.
#
# Ren et al., "Faster R-CNN", NeurIPS 2015 (arXiv:1506.01497), section 3.1.1, laid as detectron2 lays them:
# centred on a cell's upper left corner unless a configuration moves them, widths without an added pixel.


def make_cell_anchors(sizes: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """(sizes × ratios, 4) around zero; size: root of the area in pixels; ratio: height over width."""
    size = torch.tensor(sizes, dtype=torch.float64)[:, None]
    ratio = torch.tensor(ratios, dtype=torch.float64)[None]
    width, height = size / ratio.sqrt(), size * ratio.sqrt()
    return (torch.stack([-width, -height, width, height], -1) / 2).reshape(-1, 4).float()


def place_anchors(rows: int, columns: int, stride: int, cell: Tensor, offset: float = 0.0) -> Tensor:
    """(rows · columns · A, 4) in pixels, in the order row, column, anchor of the cell.

    offset: of the centres, in strides (detectron2's ANCHOR_GENERATOR.OFFSET).
    """
    y = (torch.arange(rows, device=cell.device) + offset) * stride
    x = (torch.arange(columns, device=cell.device) + offset) * stride
    y, x = torch.meshgrid(y, x, indexing="ij")
    corner = torch.stack([x, y, x, y], -1)
    return (corner[:, :, None] + cell).reshape(-1, 4)


#: Logarithms of growth are cut off here: no box of 16 pixels becomes wider than 1000.
MOST_GROWTH = math.log(1000 / 16)


def apply_deltas(
    boxes: Tensor, deltas: Tensor, weights: tuple[float, float, float, float], extra: float = 0
) -> Tensor:
    """(N, K · 4): boxes (N, 4) moved by the deltas (N, K · 4) of dx, dy, dw, dh, each divided by its weight.

    extra: 1 counts a box's last pixel into its width and height, as Caffe's networks were trained to.
    """
    size = boxes[:, None, 2:] - boxes[:, None, :2] + extra
    centre = boxes[:, None, :2] + size / 2
    deltas = deltas.reshape(len(boxes), -1, 4) / deltas.new_tensor(weights)
    centre = centre + deltas[..., :2] * size
    size = deltas[..., 2:].clamp(max=MOST_GROWTH).exp() * size
    return torch.cat([centre - size / 2, centre + size / 2], -1).flatten(1)


def clip_boxes(boxes: Tensor, height: float, width: float) -> Tensor:
    """Boxes (..., 4) cut to the picture; they may become empty."""
    most = boxes.new_tensor([width, height, width, height])
    return boxes.clamp(min=0).minimum(most)


def have_area(boxes: Tensor) -> Tensor:
    """bool (...,): the boxes that have an area."""
    return (boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1])
