"""detectron2 itself, where it is installed: it runs its own networks with the weights that ours read.

It is on no package index; docs/extractors.md has the line that builds it (commit 02b5c4e of
facebookresearch/detectron2, which names its parameters as extractors/rcnn.py does).
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from extractors.detection_input import DetectionInput
from extractors.engines import HALVES, Precision, fastest_precision
from extractors.rcnn import C4, FPN
from extractors.regions import DetectionRule, Regions
from extractors.rpn import ProposalRule

CONFIGURATIONS = {
    C4: "COCO-Detection/faster_rcnn_R_101_C4_3x.yaml",
    FPN: "COCO-Detection/faster_rcnn_R_101_FPN_3x.yaml",
}


def is_installed() -> bool:
    return find_spec("detectron2") is not None


class Detectron2:
    """The library's network with our network's weights and rules. Raises ImportError where it is absent.

    precision: None takes fp16 on a GPU and fp32 on a CPU, under autocast.
    """

    engine = "detectron2"

    def __init__(self, network: C4 | FPN, device: torch.device, precision: Precision | None = None) -> None:
        self.input: DetectionInput = network.input
        self.width, self.things, self.device = network.width, network.things, device
        self.precision = precision or (fastest_precision(device) if device.type != "cpu" else "fp32")
        self._model = _model(network, network.proposals, network.rule).to(device).eval()
        self._pyramid = isinstance(network, FPN)

    @torch.inference_mode()
    def regions(self, planes: Tensor) -> list[Regions]:
        """Of pictures uint8 (N, 3, H, W), blue first: what is found, in their pixels, the best first."""
        half = HALVES.get(self.precision)
        with torch.autocast(self.device.type, half, enabled=half is not None):
            pictures = self._model.preprocess_image([{"image": picture} for picture in planes])
            maps = self._model.backbone(pictures.tensor)
            proposals, _ = self._model.proposal_generator(pictures, maps, None)
            found, _ = self._model.roi_heads(pictures, maps, proposals, None)
            features = self._features(maps, [one.pred_boxes for one in found]).float()
        rows = torch.split(features, [len(one) for one in found])
        return [
            Regions(one.pred_boxes.tensor.float(), one.scores.float(), one.pred_classes, row)
            for one, row in zip(found, rows, strict=True)
        ]

    def _features(self, maps: dict[str, Tensor], boxes: list[Any]) -> Tensor:
        """(B, width), as the library's own heads make them before they classify."""
        heads = self._model.roi_heads
        if self._pyramid:
            bins = heads.box_pooler([maps[name] for name in heads.box_in_features], boxes)
            features: Tensor = heads.box_head(bins)
        else:
            bins = heads._shared_roi_transform([maps[name] for name in heads.in_features], boxes)
            features = bins.mean((2, 3))
        return features


def _model(network: C4 | FPN, proposals: ProposalRule, rule: DetectionRule) -> Any:
    from detectron2 import model_zoo
    from detectron2.modeling import build_model

    settings = model_zoo.get_config(CONFIGURATIONS[type(network)])
    settings.MODEL.DEVICE = "cpu"  # it moves where its caller wants it
    settings.MODEL.WEIGHTS = ""
    settings.MODEL.ROI_HEADS.NUM_CLASSES = network.things
    settings.MODEL.RPN.PRE_NMS_TOPK_TEST = proposals.before
    settings.MODEL.RPN.POST_NMS_TOPK_TEST = proposals.after
    settings.MODEL.RPN.NMS_THRESH = proposals.overlap
    settings.MODEL.ROI_HEADS.SCORE_THRESH_TEST = rule.score
    settings.MODEL.ROI_HEADS.NMS_THRESH_TEST = rule.overlap
    settings.TEST.DETECTIONS_PER_IMAGE = rule.most
    model = build_model(settings)
    model.load_state_dict(network.state_dict(), strict=True)
    return model
