"""Faster R-CNN with ResNet-101, C4 and FPN, reading detectron2's checkpoints by their own names.

Ren et al., 2015 (arXiv:1506.01497), and Lin et al., 2017 (arXiv:1612.03144), as in detectron2's
COCO-Detection/faster_rcnn_R_101_{C4,FPN}_3x.yaml. Modules are named as detectron2's, the background is the
last class, and pictures are bytes with blue first (extractors/detection_input.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors import roi
from extractors.boxes import moved
from extractors.caffe_resnet import Backbone, stage
from extractors.checkpoint import Checkpoint, WrongCheckpoint, bare, load
from extractors.detection_input import DetectionInput
from extractors.regions import DetectionRule, Regions, detect
from extractors.rpn import Head, ProposalGenerator, ProposalRule

COCO_MEAN = (103.530, 116.280, 123.675)
C4_INPUT = DetectionInput(COCO_MEAN)
FPN_INPUT = DetectionInput(COCO_MEAN, multiple=32)
#: Of dx, dy, dw, dh in the last stage.
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
#: What detectron2 keeps beside the parameters in older files, and what follows from the configuration.
CONSTANTS = ("pixel_mean", "pixel_std", "anchor_generator.cell_anchors")


@dataclass(frozen=True, eq=False)
class Said:
    """What a detector says of boxes: features (B, C), logits (B, classes + 1), deltas (B, 4 · classes)."""

    features: Tensor
    logits: Tensor
    deltas: Tensor


class Predictor(nn.Module):
    """Classes, the background among them, and a box for each that is not."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(width, classes + 1)
        self.bbox_pred = nn.Linear(width, 4 * classes)


class FasterRCNN(nn.Module, ABC):
    """A detector in two stages. ``maps``, then ``propose``, then ``describe``; ``regions`` does all."""

    proposal_generator: ProposalGenerator
    input: DetectionInput

    @abstractmethod
    def maps(self, x: Tensor) -> dict[str, Tensor]:
        """Maps of normalised pictures (N, 3, H, W), by name."""

    @abstractmethod
    def describe(self, maps: Mapping[str, Tensor], boxes: Sequence[Tensor]) -> Said:
        """Boxes (K, 4) of each picture, in its pixels."""

    @torch.inference_mode()
    def regions(
        self,
        planes: Tensor,
        proposals: ProposalRule | None = None,
        detections: DetectionRule | None = None,
    ) -> list[Regions]:
        """Of pictures (N, 3, H, W), bytes with blue first: what is found, and features of the final boxes."""
        size = (planes.shape[2], planes.shape[3])
        maps = self.maps(self.input.normalised(planes))
        boxes = [box for box, _ in self.proposal_generator.propose(maps, size, proposals or ProposalRule())]
        said = self.describe(maps, boxes)
        scores = said.logits.softmax(1)[:, :-1]
        moves = moved(torch.cat(boxes), said.deltas, BOX_WEIGHTS).reshape(len(scores), -1, 4)
        counts = [len(box) for box in boxes]
        found = [
            detect(move, score, size, detections or DetectionRule())
            for move, score in zip(torch.split(moves, counts), torch.split(scores, counts), strict=True)
        ]
        features = self.describe(maps, [box for box, _, _ in found]).features
        rows = torch.split(features, [len(box) for box, _, _ in found])
        return [Regions(*one, row) for one, row in zip(found, rows, strict=True)]


class C4Heads(nn.Module):
    """res5 on each box's 14×14 bins of res4, its mean, and the predictor."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.res5 = stage(5, 3, 2)
        self.box_predictor = Predictor(2048, classes)


class C4(FasterRCNN):
    """One map of 1024 channels, 16 pixels a cell; features of 2048."""

    input = C4_INPUT

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone = Backbone(4)
        head = Head(1024, 1024, 15)
        self.proposal_generator = ProposalGenerator(head, {"res4": 16}, [(32, 64, 128, 256, 512)])
        self.roi_heads = C4Heads(classes)

    def maps(self, x: Tensor) -> dict[str, Tensor]:
        return {"res4": self.backbone(x)["res4"]}

    def describe(self, maps: Mapping[str, Tensor], boxes: Sequence[Tensor]) -> Said:
        bins = self.roi_heads.res5(roi.align(maps["res4"], boxes, 1 / 16, 14))
        features = bins.mean((2, 3))
        predictor = self.roi_heads.box_predictor
        return Said(features, predictor.cls_score(features), predictor.bbox_pred(features))


class Pyramid(nn.Module):
    """p2 to p6: each map of the backbone with the enlarged one above it; p6 is every other cell of p5."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.bottom_up = Backbone(5)
        for level in range(2, 6):
            self.add_module(f"fpn_lateral{level}", nn.Conv2d(128 * 2 ** (level - 1), width, 1))
            self.add_module(f"fpn_output{level}", nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        from_below = self.bottom_up(x)
        maps: dict[str, Tensor] = {}
        above: Tensor | None = None
        for level in range(5, 1, -1):
            grid = self.get_submodule(f"fpn_lateral{level}")(from_below[f"res{level}"])
            above = grid if above is None else grid + F.interpolate(above, scale_factor=2.0, mode="nearest")
            maps[f"p{level}"] = self.get_submodule(f"fpn_output{level}")(above)
        maps["p6"] = maps["p5"][:, :, ::2, ::2]
        return {name: maps[name] for name in sorted(maps)}


class BoxHead(nn.Module):
    def __init__(self, width: int = 1024) -> None:
        super().__init__()
        self.fc1 = nn.Linear(256 * 7 * 7, width)
        self.fc2 = nn.Linear(width, width)

    def forward(self, bins: Tensor) -> Tensor:
        return F.relu(self.fc2(F.relu(self.fc1(bins.flatten(1)))))


class FPNHeads(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.box_head = BoxHead()
        self.box_predictor = Predictor(1024, classes)


class FPN(FasterRCNN):
    """Five maps of 256 channels; features of 1024, after the second ReLU of the box head."""

    input = FPN_INPUT

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.backbone = Pyramid()
        strides = {f"p{level}": 2**level for level in range(2, 7)}
        self.proposal_generator = ProposalGenerator(
            Head(256, 256, 3), strides, [(32,), (64,), (128,), (256,), (512,)]
        )
        self.roi_heads = FPNHeads(classes)

    def maps(self, x: Tensor) -> dict[str, Tensor]:
        maps: dict[str, Tensor] = self.backbone(x)
        return maps

    def bins(self, maps: Mapping[str, Tensor], boxes: Sequence[Tensor]) -> Tensor:
        """(B, 256, 7, 7)."""
        return roi.pyramid_align([maps[f"p{level}"] for level in range(2, 6)], 2, boxes, 7)

    def describe(self, maps: Mapping[str, Tensor], boxes: Sequence[Tensor]) -> Said:
        features = self.roi_heads.box_head(self.bins(maps, boxes))
        predictor = self.roi_heads.box_predictor
        return Said(features, predictor.cls_score(features), predictor.bbox_pred(features))


def parameters_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Without what follows from the configuration."""
    named = bare(checkpoint)
    return {name: value for name, value in named.items() if not any(part in name for part in CONSTANTS)}


def from_checkpoint(checkpoint: Checkpoint) -> C4 | FPN:
    """The detector that the checkpoint is of, in eval mode. Raises WrongCheckpoint."""
    parameters = parameters_of(checkpoint)
    try:
        classes = len(parameters["roi_heads.box_predictor.cls_score.bias"]) - 1
    except KeyError as error:
        raise WrongCheckpoint(f"not a detector's checkpoint: it has no {error}") from error
    pyramid = any(".fpn_output" in name for name in parameters)
    return load(FPN(classes), parameters) if pyramid else load(C4(classes), parameters)
