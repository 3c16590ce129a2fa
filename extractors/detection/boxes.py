"""Lays anchors, and moves boxes x0 y0 x1 y1 (arXiv:1311.2524, appendix C).

Anchors are the boxes that a region proposal network corrects, the same at every cell of a map (Ren et al.,
"Faster R-CNN", NeurIPS 2015, arXiv:1506.01497, section 3.1.1). They are laid as detectron2 lays them: centred
on a cell's upper left corner unless a configuration moves them, widths without an added pixel.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def make_cell_anchors(sizes: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """Makes the anchors of one cell, (sizes × ratios, 4), around zero.

    sizes: roots of the areas, in pixels. ratios: height over width.
    """
    size = torch.tensor(sizes, dtype=torch.float64)[:, None]
    ratio = torch.tensor(ratios, dtype=torch.float64)[None]
    width, height = size / ratio.sqrt(), size * ratio.sqrt()
    return (torch.stack([-width, -height, width, height], -1) / 2).reshape(-1, 4).float()


def place_anchors(rows: int, columns: int, stride: int, cell: Tensor, offset: float = 0.0) -> Tensor:
    """Lays a cell's anchors over a map.

    Args:
        rows: of the map.
        columns: of the map.
        stride: pixels a cell.
        cell: anchors (A, 4) around zero.
        offset: of the centres, in strides (detectron2's ANCHOR_GENERATOR.OFFSET).

    Returns:
        (rows · columns · A, 4) in pixels, in the order row, column, anchor of the cell.
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
    """Moves boxes by what a network predicts of them.

    Args:
        boxes: (N, 4).
        deltas: (N, K · 4), dx, dy, dw, dh for each of K classes.
        weights: the deltas are divided by them.
        extra: 1 counts a box's last pixel into its width and height, as Caffe's networks were trained to.

    Returns:
        (N, K · 4).
    """
    size = boxes[:, None, 2:] - boxes[:, None, :2] + extra
    centre = boxes[:, None, :2] + size / 2
    deltas = deltas.reshape(len(boxes), -1, 4) / deltas.new_tensor(weights)
    centre = centre + deltas[..., :2] * size
    size = deltas[..., 2:].clamp(max=MOST_GROWTH).exp() * size
    return torch.cat([centre - size / 2, centre + size / 2], -1).flatten(1)


def have_area(boxes: Tensor) -> Tensor:
    """Returns which boxes (..., 4) have an area: bool (...,)."""
    return (boxes[..., 2] > boxes[..., 0]) & (boxes[..., 3] > boxes[..., 1])
