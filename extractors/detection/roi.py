"""Pools maps inside boxes: ROI align, ROI max pooling, and the level of a pyramid that fits a box."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchvision.ops import roi_align, roi_pool


def roi_align_maps(
    grid: Tensor, boxes: Sequence[Tensor], scale: float, size: int, shift: bool = True, samples: int = 0
) -> Tensor:
    """Aligns maps on boxes (ROI align, arXiv:1703.06870).

    Args:
        grid: maps (N, C, H, W).
        boxes: (K, 4) of each picture, in its pixels.
        scale: cells a pixel.
        size: bins along each side.
        shift: by half a pixel, as detectron2's second version does; older networks were trained without.
        samples: along each side of a bin, 0 for as many as it has cells.

    Returns:
        (boxes, C, size, size), picture by picture.
    """
    aligned: Tensor = roi_align(grid, list(boxes), size, scale, samples, shift)
    return aligned


def roi_max_pool(grid: Tensor, boxes: Sequence[Tensor], scale: float, size: int) -> Tensor:
    """Takes the largest value of each bin, the box rounded to whole cells (Girshick, 2015).

    Args:
        grid: maps (N, C, H, W).
        boxes: (K, 4) of each picture, in its pixels.
        scale: cells a pixel.
        size: bins along each side.

    Returns:
        (boxes, C, size, size), picture by picture.
    """
    pooled: Tensor = roi_pool(grid, list(boxes), size, scale)
    return pooled


def roi_align_cells(grid: Tensor, boxes: Tensor) -> Tensor:
    """Averages a map of any extractor inside the boxes of any detector (ROI align with one bin).

    grid: (T, rows, columns, C). boxes: (T, K, 4) in [0, 1] of the picture that the map covers. Returns (T, K,
    C).
    """
    frames, rows, columns, channels = grid.shape
    cells = boxes.to(grid.device).float() * grid.new_tensor([columns, rows, columns, rows]).float()
    aligned = roi_align_maps(grid.permute(0, 3, 1, 2).float(), list(cells), 1.0, 1)
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
        result[here] = roi_align_maps(grid, on_level, 1 / 2**level, size)
    return result
