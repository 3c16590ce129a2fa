"""Aligns maps on boxes (ROI align, arXiv:1703.06870): any map's cells, and the levels of a pyramid.

Boxes are shifted by half a pixel, as detectron2's second version does it.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import roi_align


def roi_align_cells(grid: Tensor, boxes: Tensor) -> Tensor:
    """Averages a map of any extractor inside the boxes of any detector (ROI align with one bin).

    grid: (T, rows, columns, C). boxes: (T, K, 4) in [0, 1] of the picture that the map covers. Returns (T, K,
    C).
    """
    frames, rows, columns, channels = grid.shape
    cells = boxes.to(grid.device).float() * grid.new_tensor([columns, rows, columns, rows]).float()
    aligned: Tensor = roi_align(grid.permute(0, 3, 1, 2).float(), list(cells), 1, aligned=True)
    return aligned.reshape(frames, boxes.shape[1], channels)


def assign_levels(boxes: Tensor, lowest: int, highest: int) -> Tensor:
    """Chooses the pyramid level of each box, 4 for one of 224 pixels (arXiv:1612.03144, eq. 1).

    Args:
        boxes: (N, 4), in pixels.
        lowest: level that there is.
        highest: level that there is.

    Returns:
        int (N,).
    """
    side = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])).sqrt()
    level = torch.floor(4 + torch.log2(side / 224 + 1e-8))
    return level.clamp(lowest, highest).long()


def roi_align_pyramid(maps: Sequence[Tensor], lowest: int, boxes: Sequence[Tensor], size: int) -> Tensor:
    """Aligns each box on its own level of a pyramid.

    Args:
        maps: (N, C, H, W) from level ``lowest`` up; one cell is 2^level pixels.
        lowest: level of the first map.
        boxes: (K, 4) of each picture, in its pixels.
        size: bins along each side.

    Returns:
        (boxes, C, size, size), picture by picture.
    """
    all_boxes = torch.cat(list(boxes))
    levels = assign_levels(all_boxes, lowest, lowest + len(maps) - 1)
    result = maps[0].new_zeros(len(all_boxes), maps[0].shape[1], size, size)
    counts = [len(box) for box in boxes]
    for level, grid in enumerate(maps, lowest):
        here = levels == level
        on_level = [box[mask] for box, mask in zip(boxes, torch.split(here, counts), strict=True)]
        result[here] = roi_align(grid, on_level, size, 1 / 2**level, aligned=True)
    return result
