"""Detects objects by Faster R-CNN with ResNet-101, C4 and FPN, from detectron2's checkpoints.

Ren et al., 2015 (arXiv:1506.01497), and Lin et al., 2017 (arXiv:1612.03144), as in detectron2's
COCO-Detection/faster_rcnn_R_101_{C4,FPN}_3x.yaml. Modules are named as detectron2's, the background is the
last class, and pictures are bytes with blue first (extractors/preprocessing/detection.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import batched_nms, clip_boxes_to_image, roi_align

from extractors.detection.backbone import ResNetBackbone, build_stage
from extractors.detection.boxes import apply_deltas, have_area
from extractors.detection.proposals import ProposalGenerator, ProposalHead, ProposalRule
from extractors.detection.regions import Regions
from extractors.detection.roi import roi_align_pyramid
from extractors.detection.two_stage import Maps, StageRunners, TwoStage
from extractors.preprocessing.detection import DetectionInput
from extractors.pretrained.parameters import Checkpoint, WrongCheckpoint, load_strict, unwrap

COCO_MEAN = (103.530, 116.280, 123.675)
C4_INPUT = DetectionInput(COCO_MEAN)
FPN_INPUT = DetectionInput(COCO_MEAN, multiple=32)
#: Of dx, dy, dw, dh in the last stage.
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)
#: What older files of detectron2 keep beside the parameters, which follows from the configuration; and what
#: Mask R-CNN has beside Faster R-CNN.
LEFT_ALONE = ("pixel_mean", "pixel_std", "anchor_generator.cell_anchors", "roi_heads.mask_head.")


@dataclass(frozen=True)
class DetectionRule:
    """Limits which detections are kept."""

    score: float = 0.05  #: the least
    overlap: float = 0.5  #: of two boxes of a class that are one
    most: int = 100  #: boxes kept


@dataclass(frozen=True, eq=False)
class BoxPredictions:
    """Holds boxes' features (B, C), logits (B, classes + 1), deltas (B, 4 · classes)."""

    features: Tensor
    logits: Tensor
    deltas: Tensor


class BoxPredictor(nn.Module):
    """Predicts classes, the background among them, and a box for each that is not."""

    def __init__(self, width: int, classes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(width, classes + 1)
        self.bbox_pred = nn.Linear(width, 4 * classes)


class FasterRCNN(TwoStage):
    """Predicts a class and a box for each class on every region; features are those of the final boxes."""

    roi_heads: "C4Heads | FPNHeads"
    rule = DetectionRule()

    def find_regions(
        self, maps: Maps, boxes: Sequence[Tensor], size: tuple[int, int], run: StageRunners
    ) -> list[Regions]:
        predictions = self.predict(self.compute_features(maps, boxes, run))
        scores = predictions.logits.softmax(1)[:, :-1]
        moves = apply_deltas(torch.cat(list(boxes)), predictions.deltas, BOX_WEIGHTS)
        moves = moves.reshape(len(scores), -1, 4)
        counts = [len(box) for box in boxes]
        kept = [
            select_detections(move, score, size, self.rule)
            for move, score in zip(torch.split(moves, counts), torch.split(scores, counts), strict=True)
        ]
        features = self.compute_features(maps, [box for box, _, _ in kept], run)
        rows = torch.split(features, [len(box) for box, _, _ in kept])
        return [Regions(*one, row) for one, row in zip(kept, rows, strict=True)]

    def predict(self, features: Tensor) -> BoxPredictions:
        """Predicts classes and boxes from features (B, C)."""
        predictor = self.roi_heads.box_predictor
        return BoxPredictions(features, predictor.cls_score(features), predictor.bbox_pred(features))


def select_detections(
    boxes: Tensor, scores: Tensor, size: tuple[int, int], rule: DetectionRule
) -> tuple[Tensor, Tensor, Tensor]:
    """Selects boxes by their scores, after suppression within each class.

    Args:
        boxes: (N, C, 4), one for each class, in pixels.
        scores: (N, C).
        size: height and width of the picture, to which boxes are cut.
        rule: how many, and how sure.

    Returns:
        Boxes (D, 4), scores (D,) and classes (D,), the best first.
    """
    boxes = clip_boxes_to_image(boxes, size)
    row, kind = torch.nonzero((scores > rule.score) & have_area(boxes), as_tuple=True)
    box, score = boxes[row, kind], scores[row, kind]
    kept = batched_nms(box, score, kind, rule.overlap)[: rule.most]
    return box[kept], score[kept], kind[kept]


class C4Heads(nn.Module):
    """res5 on each box's 14×14 bins of res4, its mean, and the predictor."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.res5 = build_stage(5, 3, 2)
        self.box_predictor = BoxPredictor(2048, classes)


class C4(FasterRCNN):
    """Detects on one map of 1024 channels, 16 pixels a cell; features of 2048."""

    input = C4_INPUT
    proposals = ProposalRule(before=6000)
    width, bins = 2048, (1024, 14, 14)
    map_names = ("res4",)
    roi_heads: C4Heads

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.things = classes
        self.backbone = ResNetBackbone(4)
        head = ProposalHead(1024, 1024, 15)
        self.proposal_generator = ProposalGenerator(head, {"res4": 16}, [(32, 64, 128, 256, 512)])
        self.roi_heads = C4Heads(classes)

    def compute_maps(self, x: Tensor) -> dict[str, Tensor]:
        return {"res4": self.backbone(x)["res4"]}

    def pool(self, maps: Maps, boxes: Sequence[Tensor]) -> Tensor:
        bins: Tensor = roi_align(maps["res4"], list(boxes), 14, 1 / 16, aligned=True)
        return bins

    def embed(self, bins: Tensor) -> Tensor:
        features: Tensor = self.roi_heads.res5(bins).mean((2, 3))
        return features


class FeaturePyramid(nn.Module):
    """Computes p2 to p6: each map with the enlarged one above it; p6 is every other cell of p5."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.bottom_up = ResNetBackbone(5)
        for level in range(2, 6):
            self.add_module(f"fpn_lateral{level}", nn.Conv2d(128 * 2 ** (level - 1), width, 1))
            self.add_module(f"fpn_output{level}", nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        from_below = self.bottom_up(x)
        maps: dict[str, Tensor] = {}
        above: Tensor | None = None
        for level in range(5, 1, -1):
            grid = self.get_submodule(f"fpn_lateral{level}")(from_below[f"res{level}"])
            above = grid if above is None else grid + F.interpolate(above, grid.shape[2:], mode="nearest")
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
        self.box_predictor = BoxPredictor(1024, classes)


class FPN(FasterRCNN):
    """Detects on five maps of 256 channels; features of 1024, after the second ReLU of the box head."""

    input = FPN_INPUT
    proposals = ProposalRule()
    width, bins = 1024, (256, 7, 7)
    map_names = ("p2", "p3", "p4", "p5")
    roi_heads: FPNHeads

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.things = classes
        self.backbone = FeaturePyramid()
        strides = {f"p{level}": 2**level for level in range(2, 7)}
        self.proposal_generator = ProposalGenerator(
            ProposalHead(256, 256, 3), strides, [(32,), (64,), (128,), (256,), (512,)]
        )
        self.roi_heads = FPNHeads(classes)

    def compute_maps(self, x: Tensor) -> dict[str, Tensor]:
        maps: dict[str, Tensor] = self.backbone(x)
        return maps

    def pool(self, maps: Maps, boxes: Sequence[Tensor]) -> Tensor:
        return roi_align_pyramid([maps[name] for name in self.map_names], 2, boxes, 7)

    def embed(self, bins: Tensor) -> Tensor:
        features: Tensor = self.roi_heads.box_head(bins)
        return features


def select_parameters(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Selects the parameters of the detector alone."""
    named = unwrap(checkpoint)
    return {name: value for name, value in named.items() if not any(part in name for part in LEFT_ALONE)}


def from_checkpoint(checkpoint: Checkpoint) -> C4 | FPN:
    """Loads the detector that the checkpoint is of, in eval mode. Raises WrongCheckpoint."""
    parameters = select_parameters(checkpoint)
    try:
        classes = len(parameters["roi_heads.box_predictor.cls_score.bias"]) - 1
    except KeyError as error:
        raise WrongCheckpoint(f"Not a detector's checkpoint: it has no {error}.") from error
    pyramid = any(".fpn_output" in name for name in parameters)
    return load_strict(FPN(classes), parameters) if pyramid else load_strict(C4(classes), parameters)
