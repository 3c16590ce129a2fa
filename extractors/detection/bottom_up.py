"""Detects regions by bottom-up attention: Faster R-CNN of 1600 objects and 400 attributes.

Anderson et al., CVPR 2018 (arXiv:1707.07998). The weights are Caffe's, in two ports with layouts of their
own: airsplay/py-bottom-up-attention has the background as the last class, MILVLG/bottom-up-attention.pytorch
as the first, with a box for it and two scores an anchor. Modules are named as airsplay's.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import box_iou, roi_pool

from extractors.detection.backbone import ResNetBackbone, build_stage
from extractors.detection.faster_rcnn import select_parameters
from extractors.detection.proposals import ProposalGenerator, ProposalHead, ProposalRule
from extractors.detection.regions import Regions
from extractors.detection.two_stage import Maps, StageRunners, TwoStage
from extractors.preprocessing.detection import DetectionInput
from extractors.pretrained.parameters import Checkpoint, WrongCheckpoint, load_strict, unwrap

INPUT = DetectionInput((102.9801, 115.9465, 122.7717), shortest=600, longest=1000)
#: MILVLG's names on the left.
MILVLG = {"cls_embed.": "cls_embedding.", "attr_linear1.": "fc_attr.", "attr_linear2.": "attr_score."}
SIZES = (64.0, 128.0, 256.0, 512.0)


@dataclass(frozen=True, eq=False)
class AttributePredictions:
    """Holds a box's features (B, 2048), logits (B, 1601), attributes (B, 401), deltas (B, 4 ·)."""

    features: Tensor
    logits: Tensor
    attributes: Tensor
    deltas: Tensor


class AttributePredictor(nn.Module):
    """Predicts classes, boxes, and attributes: these from the feature and the likeliest class."""

    def __init__(self, classes: int, boxes: int, attributes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(2048, classes)
        self.bbox_pred = nn.Linear(2048, boxes)
        self.cls_embedding = nn.Embedding(classes, 256)
        self.fc_attr = nn.Linear(2048 + 256, 512)
        self.attr_score = nn.Linear(512, attributes)

    def forward(self, features: Tensor) -> AttributePredictions:
        logits = self.cls_score(features)
        kind = self.cls_embedding(logits.argmax(1))
        attributes = self.attr_score(F.relu(self.fc_attr(torch.cat([features, kind], 1))))
        return AttributePredictions(features, logits, attributes, self.bbox_pred(features))


class BottomUpHeads(nn.Module):
    """res5 without its stride, its 3×3 spread by two instead: 14×14 bins stay 14×14."""

    def __init__(self, classes: int, boxes: int, attributes: int) -> None:
        super().__init__()
        self.res5 = build_stage(5, 3, 1, dilation=2)
        self.box_predictor = AttributePredictor(classes, boxes, attributes)


@dataclass(frozen=True)
class RegionRule:
    """The paper's choice of regions: overlap of two of one class that are one; the score that suffices;
    least and most regions."""

    overlap: float = 0.3
    score: float = 0.2
    least: int = 10
    most: int = 100


class BottomUp(TwoStage):
    """Finds the proposals that show most, in the boxes from which their features were pooled.

    background_first: MILVLG's layout, whose boxes count their last pixel into their width.
    """

    input = INPUT
    proposals = ProposalRule(6000, 300)
    width, bins = 2048, (1024, 14, 14)
    map_names = ("res4",)
    rule = RegionRule()

    def __init__(self, classes: int = 1601, attributes: int = 401, background_first: bool = False) -> None:
        super().__init__()
        self.background_first, self.things, self.qualities = background_first, classes - 1, attributes - 1
        self.backbone = ResNetBackbone(4, caffe=True)
        head = ProposalHead(1024, 512, 12, scores=2 if background_first else 1)
        extra = 1.0 if background_first else 0.0
        self.proposal_generator = ProposalGenerator(head, {"res4": 16}, [SIZES], extra)
        boxes = 4 * (classes if background_first else classes - 1)
        self.roi_heads = BottomUpHeads(classes, boxes, attributes)

    def compute_maps(self, x: Tensor) -> dict[str, Tensor]:
        """Computes res4 of normalised pictures (N, 3, H, W)."""
        return {"res4": self.backbone(x)["res4"]}

    def pool(self, maps: Maps, boxes: Sequence[Tensor]) -> Tensor:
        bins: Tensor = roi_pool(maps["res4"], list(boxes), 14, 1 / 16)  # the largest value of each bin
        return bins

    def embed(self, bins: Tensor) -> Tensor:
        features: Tensor = self.roi_heads.res5(bins).mean((2, 3))
        return features

    def predict(self, features: Tensor) -> AttributePredictions:
        """Predicts classes, boxes and attributes from features (B, 2048)."""
        predictions: AttributePredictions = self.roi_heads.box_predictor(features)
        return predictions

    def find_regions(
        self, maps: Maps, boxes: Sequence[Tensor], _: tuple[int, int], run: StageRunners
    ) -> list[Regions]:
        predictions = self.predict(self.compute_features(maps, boxes, run))
        counts = [len(box) for box in boxes]
        rows = (
            self.drop_background(predictions.logits),
            self.drop_background(predictions.attributes),
            predictions.features,
        )
        scores, attributes, features = (torch.split(of_all, counts) for of_all in rows)
        parts = zip(boxes, scores, attributes, features, strict=True)
        return [select_regions(*one, self.rule) for one in parts]

    def drop_background(self, logits: Tensor) -> Tensor:
        """Turns logits (B, C) of classes or of attributes into probabilities (B, C − 1)."""
        scores = logits.softmax(1)
        return scores[:, 1:] if self.background_first else scores[:, :-1]


def select_regions(
    boxes: Tensor, scores: Tensor, attributes: Tensor, features: Tensor, rule: RegionRule
) -> Regions:
    """Selects regions by the best score that survives suppression within its class (the paper's section 3.1).

    Args:
        boxes: (N, 4), in pixels of the picture.
        scores: (N, 1600), the probability of each object.
        attributes: (N, 400), the probability of each attribute.
        features: (N, 2048).
        rule: how many, and how sure.

    Returns:
        The regions, the best first.
    """
    score, kind = (scores * suppress_overlaps(boxes, scores, rule.overlap)).max(1)
    order = score.argsort(descending=True, stable=True)
    count = min(max(int((score > rule.score).sum()), rule.least), rule.most)
    order = order[:count]
    return Regions(boxes[order], score[order], kind[order], features[order], attributes[order])


def suppress_overlaps(boxes: Tensor, scores: Tensor, overlap: float) -> Tensor:
    """Finds the boxes that no better one covers, by the scores of each class by itself.

    Args:
        boxes: (N, 4), in pixels.
        scores: (N, C).
        overlap: intersection over union beyond which two are one.

    Returns:
        bool (N, C).
    """
    near = box_iou(boxes, boxes) > overlap
    near.fill_diagonal_(False)
    alive = torch.ones_like(scores.T, dtype=torch.bool)
    # all classes at once, each by its own order: 1600 calls of a suppression would wait for one another
    for place in scores.argsort(dim=0, descending=True):
        alive &= ~(near[place] & alive.gather(1, place[:, None]))
    return alive.T


def from_checkpoint(checkpoint: Checkpoint) -> BottomUp:
    """Loads the detector in eval mode, from either port's names. Raises WrongCheckpoint."""
    parameters = {_rename(name): value for name, value in select_parameters(checkpoint).items()}
    predictor = "roi_heads.box_predictor."
    try:
        classes = len(parameters[f"{predictor}cls_score.bias"])
        attributes = len(parameters[f"{predictor}attr_score.bias"])
        background_first = len(parameters[f"{predictor}bbox_pred.bias"]) == 4 * classes
    except KeyError as error:
        raise WrongCheckpoint(f"Not a checkpoint of bottom-up attention: it has no {error}.") from error
    network = load_strict(BottomUp(classes, attributes, background_first), parameters)
    cells = [value for name, value in unwrap(checkpoint).items() if "cell_anchors" in name]
    if cells:  # of the weights' own training: MILVLG's configurations name other sizes
        network.proposal_generator.cells = [cell.float() for cell in cells]
    return network


def _rename(name: str) -> str:
    for theirs, ours in MILVLG.items():
        name = name.replace(f".{theirs}", f".{ours}")
    return name
