"""Proposals and detections against the stored ones: matched first, for their order follows from sorting.

Scores that are nearly equal change places with the last bits of a sum, and where one of two boxes covers
the other, so may the one that is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_iou

from extractors.detection.bottom_up import BottomUp
from extractors.detection.faster_rcnn import DetectionRule, FasterRCNN
from extractors.detection.proposals import ProposalRule
from tests.extractors.golden.golden import Case

Tensors = Mapping[str, Tensor]
#: Two boxes that overlap so much are one. Of all boxes so many must have a partner.
SAME, ENOUGH = 0.95, 0.9


@dataclass(frozen=True, eq=False)
class Rows:
    """Boxes and what goes with them, a row each; those of different classes never match."""

    boxes: Tensor
    classes: Tensor
    others: Tensors


@dataclass(frozen=True)
class Match:
    """share: of the stored boxes that have a partner; errors: of their rows, over the largest value."""

    share: float
    errors: Mapping[str, float]


def detector_rows(network: Any, picture: Tensor, case: Case) -> dict[str, Rows]:
    """Proposals, and detections where the case has any, under the settings that the manifest words."""
    assert isinstance(network, FasterRCNN | BottomUp)
    size = (picture.shape[2], picture.shape[3])
    before, overlap = case.said(r"pre_nms_topk (\d+)", "300"), case.said(r"rpn nms ([\d.]+\d)", "0.7")
    rule = ProposalRule(int(before), _count(case, "proposal_boxes"), float(overlap))
    maps = network.compute_maps(network.input.normalise(picture))
    generator = network.proposal_generator
    [(boxes, logits)] = generator.propose(generator.run_head(maps), size, rule)
    others = {"proposal_logits": logits}
    if "proposal_features" in case.entry["outputs"]:
        others["proposal_features"] = network.predict(network.embed(network.pool(maps, [boxes]))).features
    rows = {"proposal_boxes": Rows(boxes, torch.zeros(len(boxes)), others)}
    if "det_boxes" in case.entry["outputs"]:
        rows["det_boxes"] = _detections(network, picture, rule, case)
    return rows


def _detections(network: Any, picture: Tensor, proposals: ProposalRule, case: Case) -> Rows:
    score = float(case.said(r"score threshold ([\d.]+\d)", "0"))
    overlap = float(case.said(r"(?<!rpn )nms ([\d.]+\d)", "0.5"))
    network.proposals, network.rule = proposals, DetectionRule(score, overlap, _count(case, "det_boxes"))
    [found] = network.detect(picture)
    return Rows(found.boxes, found.classes, {"det_scores": found.scores})


def stored_rows(case: Case) -> dict[str, Rows]:
    rows = {}
    for boxes in case.whole_boxes:
        kind = boxes.removesuffix("boxes")
        named = {name: values for name, values in case.stored.items() if name.startswith(kind)}
        stored = {name: torch.from_numpy(values).float() for name, values in named.items()}
        corners = stored.pop(boxes)
        rows[boxes] = Rows(corners, stored.pop("det_classes", torch.zeros(len(corners))), stored)
    return rows


def match(case: Case, wanted: Rows, got: Rows, boxes: str) -> Match:
    """Each stored box with the one of ours that covers it best and is not taken yet."""
    overlap = box_iou(wanted.boxes.float(), got.boxes.float())
    overlap[wanted.classes[:, None] != got.classes[None].float()] = 0
    partner = torch.full((len(wanted.boxes),), -1)
    for row in range(len(wanted.boxes)):
        best, column = overlap[row].max(0)
        if best >= SAME:
            partner[row] = column
            overlap[:, column] = 0
    found = partner >= 0
    values = {boxes: (wanted.boxes, got.boxes)}
    values |= {name: (kept, got.others[name]) for name, kept in wanted.others.items()}
    errors = {name: _error(case, name, *pair, partner) for name, pair in values.items()}
    return Match(float(found.float().mean()), errors)


def _error(case: Case, name: str, kept: Tensor, got: Tensor, partner: Tensor) -> float:
    """The largest difference among matched rows; where not all values are kept, among those that are."""
    entry = case.entry["outputs"][name]
    paired = got[partner.clamp(min=0)]
    paired[partner < 0] = torch.nan
    mine = paired.reshape(-1)[:: entry["step"]]
    difference = (mine - kept.reshape(-1)).abs()
    largest: float = difference.nan_to_num(0).max().item()
    return largest / max(float(entry["absmax"]), 1e-30)


def _count(case: Case, output: str) -> int:
    return int(case.entry["outputs"][output]["shape"][0])
