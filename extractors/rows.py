"""What an extractor says of a batch of windows, before anybody knows when they were."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, eq=False)
class Rows:
    """One stream's share of N windows, in their order, on any device.

    values: float16/32 (N, C), or (N, K, C) of grid cells (row by row) or boxes.
    boxes: float32 (N, K, 4), x0 y0 x1 y1 in [0, 1] of the displayed frame, or None for a grid.
    mask: bool (N, K), False where a box is padding, or None where all are real.
    """

    values: Tensor
    boxes: Tensor | None = None
    mask: Tensor | None = None
