"""ROI-align of any map on any boxes: two clocks, a view that is a part of the frame, masks of both."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from extractors.catalog.roi_align import RoiExtractor, clip_to_view, match_rows
from extractors.extractor import UnknownExtractor, create
from extractors.features import WHOLE, Stream, StreamSpec, View
from extractors.preprocessing.images import INCEPTION_V4, ResizeAndCrop

SPEC = StreamSpec("resnet152", "abc", "middle 224x224")
BOXES_SPEC = StreamSpec("mask-rcnn", "def", "whole")


def ramp(rows: int = 1, side: int = 8, view: View = WHOLE, mask: Tensor | None = None) -> Stream:
    """A map whose two channels are the place of a cell's middle, across and down, in [0, 1]; the third is
    the number of the row. A row lasts a second."""
    middle = (torch.arange(side) + 0.5) / side
    down, across = torch.meshgrid(middle, middle, indexing="ij")
    cells = torch.stack([across, down, torch.zeros(side, side)], -1).reshape(1, side * side, 3)
    values = cells.repeat(rows, 1, 1)
    values[..., 2] = torch.arange(rows)[:, None]
    start = np.arange(rows, dtype=np.float64)
    return Stream(values, start, start + 1, SPEC, mask=mask, view=view)


def regions(*rows: list[tuple[float, float, float, float]], every: float = 1.0, lasts: float = 1.0) -> Stream:
    """Boxes of rows that begin ``every`` seconds."""
    start = np.arange(len(rows), dtype=np.float64) * np.float64(every)
    boxes = torch.tensor(rows)
    values = torch.zeros(len(rows), boxes.shape[1], 4)
    mask = boxes[..., 2] > boxes[..., 0]
    return Stream(values, start, start + lasts, BOXES_SPEC, boxes=boxes, mask=mask)


def derive(grid: Stream, boxes: Stream) -> Stream:
    made = RoiExtractor("roi:x@y", "x_grid", "y")
    return made.derive({"x_grid": grid, "y": boxes})["roi:x@y"]


def real(stream: Stream) -> list[list[bool]]:
    assert stream.mask is not None
    return [[bool(one) for one in row] for row in stream.mask]


def test_a_box_shows_the_middle_of_what_is_in_it() -> None:
    stream = derive(ramp(), regions([(0.25, 0.5, 0.75, 1.0), (0.0, 0.0, 1.0, 0.25)]))
    torch.testing.assert_close(
        stream.values[0, :, :2], torch.tensor([[0.5, 0.75], [0.5, 0.125]]), atol=0.01, rtol=0
    )
    assert real(stream) == [[True, True]]


def test_masked_boxes_are_zeros() -> None:
    stream = derive(ramp(), regions([(0.25, 0.25, 0.75, 0.75), (0.0, 0.0, 0.0, 0.0)]))
    assert real(stream) == [[True, False]]
    assert not stream.values[0, 1].any()


def test_a_padded_row_of_the_map_stays_masked() -> None:
    stream = derive(ramp(2, mask=torch.tensor([True, False])), regions([(0.0, 0.0, 1.0, 1.0)]))
    assert real(stream) == [[True], [False]]


def test_a_view_of_the_middle_moves_boxes_and_masks_those_outside() -> None:
    """The map covers the middle half of the frame's width."""
    view = (0.25, 0.0, 0.75, 1.0)
    boxes = regions(
        [(0.25, 0.0, 0.75, 1.0), (0.0, 0.0, 0.5, 1.0), (0.0, 0.0, 0.25, 1.0), (0.8, 0.0, 1.0, 1.0)]
    )
    stream = derive(ramp(view=view), boxes)
    assert real(stream) == [[True, True, False, False]]
    torch.testing.assert_close(stream.values[0, :2, 0], torch.tensor([0.5, 0.25]), atol=0.01, rtol=0)
    assert not stream.values[0, 2:].any()
    assert stream.boxes is not None
    assert boxes.boxes is not None
    assert torch.equal(stream.boxes, boxes.boxes)  # they are of the frame, whatever the map saw


def test_boxes_on_uneven_cells_are_measured_by_the_cells_edges() -> None:
    """Inception-V4's outermost cells are wider than the others: eight even ones would lie elsewhere."""
    edges = np.array(INCEPTION_V4)
    middle = torch.tensor([37.5 + 32 * cell for cell in range(8)]) / 299  # where each cell looks
    down, across = torch.meshgrid(middle, middle, indexing="ij")
    cells = torch.stack([across, down], -1).reshape(1, 64, 2)
    grid = Stream(cells, np.zeros(1), np.ones(1), SPEC)
    made = RoiExtractor("roi:inception_v4@y", "inception_v4_grid", "y")
    boxes = regions([(0.3, 0.5, 0.5, 0.7), (0.0, 0.0, float(edges[1]), float(edges[1]))])
    stream = made.derive({"inception_v4_grid": grid, "y": boxes})["roi:inception_v4@y"]
    wanted = torch.tensor([[0.4, 0.6], [37.5 / 299] * 2])
    torch.testing.assert_close(stream.values[0, 0], wanted[0], atol=0.003, rtol=0)
    torch.testing.assert_close(stream.values[0, 1], wanted[1], atol=0.03, rtol=0)
    assert stream.spec.preprocessing.endswith("cells by their edges")
    assert not derive(ramp(), boxes).spec.preprocessing.endswith("edges")


def test_framing_says_its_view() -> None:
    assert ResizeAndCrop(256, None).view(480, 640) == WHOLE
    left, top, right, bottom = ResizeAndCrop(256, 224).view(480, 640)  # resized to 256 × 341
    assert (left, right) == pytest.approx((58 / 341, 282 / 341))
    assert (top, bottom) == pytest.approx((16 / 256, 240 / 256))
    assert ResizeAndCrop((128, 171), 112).view(999, 10) == pytest.approx(
        (29 / 171, 8 / 128, 141 / 171, 120 / 128)
    )
    box = torch.tensor([[left, top, right, bottom]])
    torch.testing.assert_close(
        clip_to_view(box, (left, top, right, bottom)), torch.tensor([[0.0, 0.0, 1.0, 1.0]])
    )


def test_each_row_gets_the_boxes_that_cover_its_middle_or_are_nearest() -> None:
    """Boxes of single frames, a tenth of a second long, at 0, 1.5 and 3 seconds; rows of one second."""
    boxes = regions(*[[(k / 4, 0.0, (k + 1) / 4, 1.0)] for k in range(3)], every=1.5, lasts=0.1)
    grid = ramp(5)
    assert match_rows(grid, boxes).tolist() == [0, 1, 2, 2, 2]
    stream = derive(grid, boxes)
    assert stream.boxes is not None
    assert stream.boxes[:, 0, 0].tolist() == [0.0, 0.25, 0.5, 0.5, 0.5]
    assert stream.values[:, 0, 2].tolist() == pytest.approx([0, 1, 2, 3, 4])
    assert stream.start.tolist() == grid.start.tolist()
    finer = regions(*[[(k / 8, 0.0, (k + 1) / 8, 1.0)] for k in range(8)], every=0.25, lasts=0.25)
    assert match_rows(ramp(2), finer).tolist() == [2, 6]


def test_the_name_tag_is_of_both() -> None:
    spec = derive(ramp(), regions([(0.0, 0.0, 1.0, 1.0)])).spec
    assert spec.network == "roi-align of resnet152 on mask-rcnn"
    assert "abc" in spec.weights_sha256
    assert "def" in spec.weights_sha256
    other = ramp()
    moved = Stream(other.values, other.start, other.end, StreamSpec("resnet152", "new", "middle 224x224"))
    assert derive(moved, regions([(0.0, 0.0, 1.0, 1.0)])).spec.identity != spec.identity


@pytest.mark.parametrize(
    ("name", "needed"),
    [
        ("roi:resnet152@mask_rcnn", ("resnet152_grid", "mask_rcnn")),
        ("roi:i3d_rgb_grid@bottom_up:16", ("i3d_rgb_grid", "bottom_up:16")),
        ("roi:efficientnet-lite2@coco_ssd", ("grid", "coco_ssd")),
    ],
)
def test_names_of_what_is_needed(name: str, needed: tuple[str, str]) -> None:
    made = create(name)
    assert isinstance(made, RoiExtractor)
    assert made.needs_streams == needed
    assert made.name == name


@pytest.mark.parametrize("name", ["roi:", "roi:resnet152", "roi:@mask_rcnn", "roi:resnet152@"])
def test_half_a_name_is_refused(name: str) -> None:
    with pytest.raises(UnknownExtractor, match="<map>@<boxes>"):
        create(name)


def test_what_cannot_be_pooled_is_refused() -> None:
    boxes, grid = regions([(0.0, 0.0, 1.0, 1.0)]), ramp()
    made = RoiExtractor("roi:x@y", "x_grid", "y")
    with pytest.raises(ValueError, match="needs the stream y"):
        made.derive({"x_grid": grid})
    with pytest.raises(ValueError, match="y has none"):
        made.derive({"x_grid": grid, "y": grid})
    with pytest.raises(ValueError, match="x_grid is none"):
        made.derive({"x_grid": boxes, "y": boxes})
    odd = Stream(grid.values[:, :6], grid.start, grid.end, SPEC)
    with pytest.raises(ValueError, match="6 cells"):
        derive(odd, boxes)
