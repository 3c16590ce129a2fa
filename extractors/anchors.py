"""Anchors: the boxes that a region proposal network corrects, the same at every cell of a map.

Ren et al., "Faster R-CNN", NeurIPS 2015 (arXiv:1506.01497), section 3.1.1, laid as detectron2 lays them:
centred on a cell's upper left corner unless a configuration moves them, widths without an added pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def cell_anchors(sizes: Sequence[float], ratios: Sequence[float]) -> Tensor:
    """(sizes × ratios, 4) around zero; size: root of the area in pixels; ratio: height over width."""
    size = torch.tensor(sizes, dtype=torch.float64)[:, None]
    ratio = torch.tensor(ratios, dtype=torch.float64)[None]
    width, height = size / ratio.sqrt(), size * ratio.sqrt()
    return (torch.stack([-width, -height, width, height], -1) / 2).reshape(-1, 4).float()


def anchors(rows: int, columns: int, stride: int, cell: Tensor, offset: float = 0.0) -> Tensor:
    """(rows · columns · A, 4) in pixels, in the order row, column, anchor of the cell.

    offset: of the centres, in strides (detectron2's ANCHOR_GENERATOR.OFFSET).
    """
    y = (torch.arange(rows, device=cell.device) + offset) * stride
    x = (torch.arange(columns, device=cell.device) + offset) * stride
    y, x = torch.meshgrid(y, x, indexing="ij")
    corner = torch.stack([x, y, x, y], -1)
    return (corner[:, :, None] + cell).reshape(-1, 4)
