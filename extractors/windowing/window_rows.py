"""Holds the rows that an extractor makes of windows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class WindowRows:
    """Holds feature rows of N windows, in their order, on any device: one stream's share."""

    values: Tensor  #: float16/32 (N, C), or (N, K, C) of grid cells (row by row) or boxes
    boxes: Tensor | None = None  #: float32 (N, K, 4), x0 y0 x1 y1 in [0, 1] of the frame; None for a grid
    mask: Tensor | None = None  #: bool (N, K), False where a box is padding; None where all are real


def move_to_cpu(rows: Mapping[str, WindowRows]) -> dict[str, WindowRows]:
    """Moves rows to where streams are kept."""
    return {
        name: WindowRows(
            row.values.cpu(),
            None if row.boxes is None else row.boxes.cpu(),
            None if row.mask is None else row.mask.cpu(),
        )
        for name, row in rows.items()
    }


def join_rows(rows: Sequence[WindowRows]) -> WindowRows:
    """Joins batches of one stream, one after the other."""
    boxes = [row.boxes for row in rows if row.boxes is not None]
    masks = [row.mask for row in rows if row.mask is not None]
    values = torch.cat([row.values for row in rows])
    return WindowRows(values, torch.cat(boxes) if boxes else None, torch.cat(masks) if masks else None)
