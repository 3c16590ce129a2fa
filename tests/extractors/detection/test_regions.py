"""What detectors keep, against loops: detections, fixed rows of boxes, and bottom-up attention's own rule."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torchvision.ops import nms

from extractors.detection.bottom_up import RegionRule, select_regions, suppress_overlaps
from extractors.detection.faster_rcnn import DetectionRule, select_detections
from extractors.detection.regions import Regions, pad_regions
from tests.extractors.slow_boxes import cut, is_solid, overlap_of

SIZE = (60, 80)


def crowd(count: int, seed: int) -> Tensor:
    """Boxes that overlap much, some of them beyond the picture."""
    random = torch.Generator().manual_seed(seed)
    corner = torch.rand(count, 2, generator=random) * torch.tensor([70.0, 50.0]) - 8
    return torch.cat([corner, corner + 8 + 30 * torch.rand(count, 2, generator=random)], 1)


def some_scores(count: int, classes: int, seed: int) -> Tensor:
    return torch.rand(count, classes, generator=torch.Generator().manual_seed(seed))


def thinned(
    found: list[tuple[float, list[float], int]], overlap: float
) -> list[tuple[float, list[float], int]]:
    """The best first, each that no kept one of its class covers."""
    kept: list[tuple[float, list[float], int]] = []
    for score, box, kind in sorted(found, key=lambda one: -one[0]):
        if all(other != kind or overlap_of(box, of_other) <= overlap for _, of_other, other in kept):
            kept.append((score, box, kind))
    return kept


@pytest.mark.parametrize("most", [7, 1000])
def test_detections_are_those_of_the_loop(most: int) -> None:
    rule = DetectionRule(score=0.4, overlap=0.3, most=most)
    boxes = torch.stack([crowd(30, seed) for seed in range(3)], 1)
    boxes[4, 1] = torch.tensor([90.0, 3, 95, 8])  # outside the picture
    scores = some_scores(30, 3, 9)
    found = []
    for box, score in zip(boxes.tolist(), scores.tolist(), strict=True):
        for kind in range(3):
            inside = cut(box[kind], *SIZE)
            if score[kind] > 0.4 and is_solid(inside):
                found.append((score[kind], inside, kind))
    wanted = thinned(found, 0.3)[:most]
    kept, kept_scores, kinds = select_detections(boxes, scores, SIZE, rule)
    torch.testing.assert_close(kept_scores, torch.tensor([one[0] for one in wanted]))
    torch.testing.assert_close(kept, torch.tensor([one[1] for one in wanted]))
    assert kinds.tolist() == [one[2] for one in wanted]


def test_nothing_found_is_no_box() -> None:
    box, score, kind = select_detections(crowd(5, 1)[:, None], torch.zeros(5, 1), SIZE, DetectionRule())
    assert box.shape == (0, 4)
    assert len(score) == len(kind) == 0


def test_rows_are_the_best_boxes_then_zeros() -> None:
    found = [
        Regions(
            torch.tensor([[0.0, 0, 40, 30], [8, 6, 90, 60]]),
            torch.tensor([0.9, 0.5]),
            torch.tensor([2, 0]),
            torch.ones(2, 5),
        ),
        Regions(torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, dtype=torch.long), torch.zeros(0, 5)),
    ]
    made = pad_regions(found, SIZE, count=3, things=4)
    assert set(made) == {"", "_scores"}
    features, scores = made[""], made["_scores"]
    assert features.values.shape == (2, 3, 5)
    assert features.values.sum((1, 2)).tolist() == [10, 0]
    assert features.boxes is not None
    torch.testing.assert_close(
        features.boxes[0], torch.tensor([[0, 0, 0.5, 0.5], [0.1, 0.1, 1, 1], [0, 0, 0, 0]])
    )
    assert features.mask is not None
    assert features.mask.tolist() == [[True, True, False], [False, False, False]]
    by_class = torch.tensor([[0, 0, 0.9, 0], [0.5, 0, 0, 0], [0, 0, 0, 0]])
    torch.testing.assert_close(scores.values[0], by_class.half())
    [fewer] = pad_regions(found[:1], SIZE, count=1, things=4)["_scores"].values
    torch.testing.assert_close(fewer, by_class[:1].half())


def test_survivors_are_those_of_torchvision_class_by_class() -> None:
    boxes, scores = crowd(80, 3), some_scores(80, 11, 4)
    alive = suppress_overlaps(boxes, scores, 0.3)
    for kind in range(11):
        kept = nms(boxes, scores[:, kind], 0.3)
        assert alive[:, kind].nonzero().flatten().tolist() == sorted(kept.tolist())
    assert 0.1 < alive.float().mean() < 0.9


@pytest.mark.parametrize(("score", "least", "most"), [(0.995, 5, 9), (0.9, 1, 100), (0.0, 1, 12)])
def test_bottom_up_keeps_regions_by_their_best_surviving_class(score: float, least: int, most: int) -> None:
    """The least where few are sure, the most where many are, else all that are sure."""
    boxes, scores = crowd(50, 5), some_scores(50, 6, 6)
    features, attributes = torch.arange(50.0)[:, None], some_scores(50, 3, 7)
    best_of = torch.zeros(50)
    class_of = [0] * 50
    for kind in range(6):
        of_class = [(float(scores[i, kind]), boxes[i].tolist(), i) for i in range(50)]
        kept: list[tuple[float, list[float], int]] = []
        for value, box, i in sorted(of_class, key=lambda one: -one[0]):
            if all(overlap_of(box, other) <= 0.3 for _, other, _ in kept):
                kept.append((value, box, i))
                if value > best_of[i]:
                    best_of[i], class_of[i] = value, kind
    sure = int((best_of > score).sum())
    order = best_of.argsort(descending=True, stable=True)[: min(max(sure, least), most)].tolist()
    made = select_regions(boxes, scores, attributes, features, RegionRule(0.3, score, least, most))
    assert made.features.flatten().tolist() == order
    assert made.classes.tolist() == [class_of[i] for i in order]
    torch.testing.assert_close(made.scores, best_of[order])
    torch.testing.assert_close(made.boxes, boxes[order])
    assert made.attributes is not None
    torch.testing.assert_close(made.attributes, attributes[order])
