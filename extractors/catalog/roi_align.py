"""Pools any network's map inside any detector's boxes: ``roi:<map>@<boxes>``.

``roi:resnet152@mask_rcnn`` takes the 7 × 7 cells of ResNet-152 and pools them inside Mask R-CNN's boxes by
ROI align (He et al., 2017, arXiv:1703.06870), as captioners are fed that join several networks to one set of
objects.
Both streams have their own clock: a row of the map gets the boxes of the row that covers its middle, or else
of the nearest. Where a map's cells do not tile the picture evenly (extractors/preprocessing/images.py),
boxes are measured by the cells' own edges. A network that saw only the middle of the frame knows nothing of
what is beside it: boxes are cut to that view, and those that lie outside are masked.
"""

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torchvision.ops import clip_boxes_to_image

from extractors.detection.boxes import have_area
from extractors.detection.roi import roi_align_cells
from extractors.extractor import ExtractorOptions, UnknownExtractor
from extractors.features import Stream, StreamSpec, View
from extractors.preprocessing.images import Edges, find_cell_edges, make_even_edges

PREFIX = "roi:"
#: Streams of maps are called after their extractor, but for the oldest.
MAPS = {"efficientnet-lite2": "grid"}


class RoiExtractor:
    """Makes the stream ``<name>`` (T, K, C): a row for each of the map's, with the detector's boxes and mask.

    width: 0, for as many channels as the map has.
    """

    needs = frozenset({"streams"})
    width = 0

    def __init__(self, name: str, grid: str, boxes: str) -> None:
        self.name, self.grid, self.boxes = name, grid, boxes
        self.needs_streams = (grid, boxes)
        self.spec = StreamSpec(f"roi-align of {grid} on {boxes}", "", "")

    def derive(self, streams: Mapping[str, Stream]) -> dict[str, Stream]:
        """Pools the map inside the boxes.

        Raises ValueError where a stream is absent, or is no square map, or has no boxes.
        """
        grid, regions = self._find_needed(streams)
        rows = match_rows(grid, regions)
        assert regions.boxes is not None
        boxes = regions.boxes[rows]
        seen = clip_to_view(boxes, grid.view)
        real = find_real_rows(regions)[rows] & have_area(seen) & find_real_rows(grid)[:, None]
        cells = to_square_map(grid.values)
        edges = find_cell_edges(self.grid, cells.shape[1])
        values = roi_align_cells(cells, measure_by_cells(seen, edges)) * real[..., None]
        return {
            self.name: Stream(
                values.to(grid.values.dtype),
                grid.start,
                grid.end,
                _combine_specs(grid.spec, regions.spec, edges),
                boxes=boxes,
                mask=real,
            )
        }

    def _find_needed(self, streams: Mapping[str, Stream]) -> tuple[Stream, Stream]:
        absent = [name for name in self.needs_streams if name not in streams]
        if absent:
            raise ValueError(f"{self.name} needs the stream {absent[0]}: ask for its extractor too")
        grid, regions = (streams[name] for name in self.needs_streams)
        if regions.boxes is None:
            raise ValueError(f"{self.name} needs boxes, and {self.boxes} has none")
        if grid.values.dim() != 3 or grid.boxes is not None:
            raise ValueError(f"{self.name} needs a map, and {self.grid} is none")
        return grid, regions


def match_rows(grid: Stream, regions: Stream) -> NDArray[np.int64]:
    """Finds for each row of the map the row of the boxes that covers its middle, or lies nearest to it."""
    middle = ((grid.start + grid.end) / 2)[:, None]
    away = np.maximum(np.maximum(regions.start - middle, middle - regions.end), 0.0)
    # where two touch, the one that begins there
    later: NDArray[np.int64] = away.shape[1] - 1 - away[:, ::-1].argmin(1)
    return later


def clip_to_view(boxes: Tensor, view: View) -> Tensor:
    """Moves boxes (..., 4) in [0, 1] of the frame to [0, 1] of the view, cut to it."""
    left, top, right, bottom = view
    corner, size = boxes.new_tensor([left, top] * 2), boxes.new_tensor([right - left, bottom - top] * 2)
    clipped: Tensor = clip_boxes_to_image((boxes - corner) / size, (1.0, 1.0))
    return clipped


def measure_by_cells(boxes: Tensor, edges: Edges) -> Tensor:
    """Measures boxes in [0, 1] of the view by cells with these edges, so that each cell counts alike."""
    even = make_even_edges(len(edges) - 1)
    if edges == even:
        return boxes
    return torch.from_numpy(np.interp(boxes.cpu().numpy(), edges, even)).to(boxes)


def find_real_rows(stream: Stream) -> Tensor:
    """Returns the mask, bool (T,), or (T, K) of boxes: True where real."""
    if stream.mask is not None:
        return stream.mask
    return torch.ones(stream.values.shape[: 1 if stream.boxes is None else 2], dtype=torch.bool)


def to_square_map(cells: Tensor) -> Tensor:
    """Reshapes cells row by row (T, side², C) to a map (T, side, side, C)."""
    side = math.isqrt(cells.shape[1])
    if side * side != cells.shape[1]:
        raise ValueError(f"a map of {cells.shape[1]} cells is no square: which rows it has is not known")
    return cells.reshape(len(cells), side, side, -1)


def _combine_specs(grid: StreamSpec, boxes: StreamSpec, edges: Edges) -> StreamSpec:
    """Makes a name tag that changes where that of the map or of the boxes does; uneven cells are told."""
    uneven = "" if edges == make_even_edges(len(edges) - 1) else ", cells by their edges"
    return StreamSpec(
        f"roi-align of {grid.network} on {boxes.network}",
        f"{grid.weights_sha256}+{boxes.weights_sha256}",
        f"map: {grid.preprocessing}; boxes: {boxes.preprocessing}; one bin a box, half-cell shift{uneven}",
        f"map: {grid.sampling}; boxes: {boxes.sampling}",
        f"{grid.engine}+{boxes.engine}",
        f"{grid.precision}+{boxes.precision}",
    )


def make(name: str, _: ExtractorOptions) -> RoiExtractor:
    """Makes the extractor of that name. Raises UnknownExtractor where it names no map and boxes."""
    grid, at, boxes = name.removeprefix(PREFIX).partition("@")
    if not (grid and at and boxes):
        raise UnknownExtractor(f"{name!r} should be {PREFIX}<map>@<boxes>, such as roi:resnet152@mask_rcnn")
    grid_stream = grid if grid == "grid" or grid.endswith("_grid") else MAPS.get(grid, f"{grid}_grid")
    return RoiExtractor(name, grid_stream, boxes)
