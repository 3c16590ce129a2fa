"""Bottom-up attention: Faster R-CNN of Visual Genome's 1600 objects and 400 attributes.

Anderson et al., CVPR 2018 (arXiv:1707.07998). The weights are Caffe's, in two ports with layouts of their
own: airsplay/py-bottom-up-attention has the background as the last class, MILVLG/bottom-up-attention.pytorch
as the first, with a box for it and two scores an anchor. Modules are named as airsplay's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops import nms

from extractors import roi
from extractors.caffe_resnet import Backbone, stage
from extractors.checkpoint import Checkpoint, WrongCheckpoint, load
from extractors.detection_input import DetectionInput
from extractors.rcnn import parameters_of
from extractors.regions import Regions
from extractors.rpn import Head, ProposalGenerator, ProposalRule

INPUT = DetectionInput((102.9801, 115.9465, 122.7717), shortest=600, longest=1000)
#: MILVLG's names on the left.
MILVLG = {"cls_embed.": "cls_embedding.", "attr_linear1.": "fc_attr.", "attr_linear2.": "attr_score."}
SIZES = (64.0, 128.0, 256.0, 512.0)


@dataclass(frozen=True, eq=False)
class Said:
    """Of boxes: features (B, 2048); logits (B, 1601), attributes (B, 401), deltas (B, 4 ·)."""

    features: Tensor
    logits: Tensor
    attributes: Tensor
    deltas: Tensor


class Predictor(nn.Module):
    """Classes, boxes, and attributes, which are read from the feature and the likeliest class."""

    def __init__(self, classes: int, boxes: int, attributes: int) -> None:
        super().__init__()
        self.cls_score = nn.Linear(2048, classes)
        self.bbox_pred = nn.Linear(2048, boxes)
        self.cls_embedding = nn.Embedding(classes, 256)
        self.fc_attr = nn.Linear(2048 + 256, 512)
        self.attr_score = nn.Linear(512, attributes)

    def forward(self, features: Tensor) -> Said:
        logits = self.cls_score(features)
        kind = self.cls_embedding(logits.argmax(1))
        attributes = self.attr_score(F.relu(self.fc_attr(torch.cat([features, kind], 1))))
        return Said(features, logits, attributes, self.bbox_pred(features))


class Heads(nn.Module):
    """res5 without its stride, its 3×3 spread by two instead: 14×14 bins stay 14×14."""

    def __init__(self, classes: int, boxes: int, attributes: int) -> None:
        super().__init__()
        self.res5 = stage(5, 3, 1, dilation=2)
        self.box_predictor = Predictor(classes, boxes, attributes)


@dataclass(frozen=True)
class RegionRule:
    """The paper's choice of regions: overlap of two of one class that are one; the score that suffices;
    least and most regions."""

    overlap: float = 0.3
    score: float = 0.2
    least: int = 10
    most: int = 100


class BottomUp(nn.Module):
    """``maps``, then ``propose``, then ``describe``; ``regions`` does all.

    background_first: MILVLG's layout, whose boxes count their last pixel into their width.
    """

    input = INPUT

    def __init__(self, classes: int = 1601, attributes: int = 401, background_first: bool = False) -> None:
        super().__init__()
        self.background_first = background_first
        self.backbone = Backbone(4, caffe=True)
        head = Head(1024, 512, 12, scores=2 if background_first else 1)
        extra = 1.0 if background_first else 0.0
        self.proposal_generator = ProposalGenerator(head, {"res4": 16}, [SIZES], extra)
        boxes = 4 * (classes if background_first else classes - 1)
        self.roi_heads = Heads(classes, boxes, attributes)

    def maps(self, x: Tensor) -> dict[str, Tensor]:
        """res4 of normalised pictures (N, 3, H, W)."""
        return {"res4": self.backbone(x)["res4"]}

    def describe(self, maps: Mapping[str, Tensor], boxes: Sequence[Tensor]) -> Said:
        """Boxes (K, 4) of each picture, in its pixels."""
        bins = self.roi_heads.res5(roi.max_pool(maps["res4"], boxes, 1 / 16, 14))
        said: Said = self.roi_heads.box_predictor(bins.mean((2, 3)))
        return said

    def objects(self, said: Said) -> Tensor:
        """Scores (B, 1600) of the classes, the background left out."""
        scores = said.logits.softmax(1)
        return scores[:, 1:] if self.background_first else scores[:, :-1]

    @torch.inference_mode()
    def regions(self, planes: Tensor, rule: RegionRule | None = None) -> list[Regions]:
        """Of pictures (N, 3, H, W), blue first, bytes: the proposals that show most, as they were pooled."""
        maps = self.maps(self.input.normalised(planes))
        size = (planes.shape[2], planes.shape[3])
        boxes = [box for box, _ in self.proposal_generator.propose(maps, size, ProposalRule(6000, 300))]
        said = self.describe(maps, boxes)
        counts = [len(box) for box in boxes]
        scores, features = (torch.split(rows, counts) for rows in (self.objects(said), said.features))
        parts = zip(boxes, scores, features, strict=True)
        return [best(*part, rule or RegionRule()) for part in parts]


def best(boxes: Tensor, scores: Tensor, features: Tensor, rule: RegionRule) -> Regions:
    """Regions by the best score that survives suppression within its class (the paper's section 3.1)."""
    kept = torch.zeros_like(scores)
    for kind in range(scores.shape[1]):
        alive = nms(boxes, scores[:, kind], rule.overlap)
        kept[alive, kind] = scores[alive, kind]
    score, kind_of = kept.max(1)
    order = score.argsort(descending=True, stable=True)
    count = min(max(int((score > rule.score).sum()), rule.least), rule.most)
    order = order[:count]
    return Regions(boxes[order], score[order], kind_of[order], features[order])


def from_checkpoint(checkpoint: Checkpoint) -> BottomUp:
    """The detector in eval mode, from either port's names. Raises WrongCheckpoint."""
    parameters = {_our_name(name): value for name, value in parameters_of(checkpoint).items()}
    predictor = "roi_heads.box_predictor."
    try:
        classes = len(parameters[f"{predictor}cls_score.bias"])
        attributes = len(parameters[f"{predictor}attr_score.bias"])
        background_first = len(parameters[f"{predictor}bbox_pred.bias"]) == 4 * classes
    except KeyError as error:
        raise WrongCheckpoint(f"not a checkpoint of bottom-up attention: it has no {error}") from error
    return load(BottomUp(classes, attributes, background_first), parameters)


def _our_name(name: str) -> str:
    for theirs, ours in MILVLG.items():
        name = name.replace(f".{theirs}", f".{ours}")
    return name
