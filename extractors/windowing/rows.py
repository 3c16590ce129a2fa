"""Feature rows of a batch of windows, and their conversion to a stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from extractors.features import WHOLE, Stream, StreamSpec, View
from extractors.windows import Cut


@dataclass(frozen=True, eq=False)
class WindowRows:
    """One stream's share of N windows, in their order, on any device.

    values: float16/32 (N, C), or (N, K, C) of grid cells (row by row) or boxes.
    boxes: float32 (N, K, 4), x0 y0 x1 y1 in [0, 1] of the displayed frame, or None for a grid.
    mask: bool (N, K), False where a box is padding, or None where all are real.
    """

    values: Tensor
    boxes: Tensor | None = None
    mask: Tensor | None = None


def on_the_cpu(rows: Mapping[str, WindowRows]) -> dict[str, WindowRows]:
    """The same rows where streams are kept."""
    return {
        name: WindowRows(
            row.values.cpu(),
            None if row.boxes is None else row.boxes.cpu(),
            None if row.mask is None else row.mask.cpu(),
        )
        for name, row in rows.items()
    }


def joined(rows: Sequence[WindowRows]) -> WindowRows:
    """Batches of one stream, one behind the other."""
    boxes = [row.boxes for row in rows if row.boxes is not None]
    masks = [row.mask for row in rows if row.mask is not None]
    values = torch.cat([row.values for row in rows])
    return WindowRows(values, torch.cat(boxes) if boxes else None, torch.cat(masks) if masks else None)


def stream(rows: WindowRows, cut: Cut, spec: StreamSpec, view: View = WHOLE) -> Stream:
    """Rows with the times of their windows; a padded window is masked."""
    real = torch.from_numpy(~cut.padded)
    mask = real if rows.mask is None else rows.mask & real[:, None]
    return Stream(rows.values, cut.start, cut.end, spec, boxes=rows.boxes, mask=mask, view=view)
