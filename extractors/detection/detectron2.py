"""Runs detectron2's own networks, where it is installed, with the weights that ours read.

It is on no package index; docs/networks.md has the line that builds it (commit 02b5c4e of
facebookresearch/detectron2, which names its parameters as extractors/detection/faster_rcnn.py does).
"""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from extractors.detection.faster_rcnn import C4, FPN, FasterRCNN
from extractors.detection.regions import Regions
from extractors.engines.engine import HALVES, Precision, fastest_precision
from extractors.preprocessing.detection import DetectionInput

#: What differs from the library's defaults, which are those of R50-C4: its configuration files for COCO,
#: COCO-Detection/faster_rcnn_R_101_{C4,FPN}_3x.yaml, say no more of the network.
SETTINGS: Mapping[type[FasterRCNN], Mapping[str, object]] = {
    C4: {"MODEL.RESNETS.DEPTH": 101},
    FPN: {
        "MODEL.BACKBONE.NAME": "build_resnet_fpn_backbone",
        "MODEL.RESNETS.DEPTH": 101,
        "MODEL.RESNETS.OUT_FEATURES": ["res2", "res3", "res4", "res5"],
        "MODEL.FPN.IN_FEATURES": ["res2", "res3", "res4", "res5"],
        "MODEL.ANCHOR_GENERATOR.SIZES": [[32], [64], [128], [256], [512]],
        "MODEL.RPN.IN_FEATURES": ["p2", "p3", "p4", "p5", "p6"],
        "MODEL.ROI_HEADS.NAME": "StandardROIHeads",
        "MODEL.ROI_HEADS.IN_FEATURES": ["p2", "p3", "p4", "p5"],
        "MODEL.ROI_BOX_HEAD.NAME": "FastRCNNConvFCHead",
        "MODEL.ROI_BOX_HEAD.NUM_FC": 2,
        "MODEL.ROI_BOX_HEAD.POOLER_RESOLUTION": 7,
    },
}


def is_installed() -> bool:
    return find_spec("detectron2") is not None


@contextmanager
def silence_deprecations() -> Iterator[None]:
    """Silences warnings about what the library uses of torch that torch will change one day."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.filterwarnings("ignore", "torch.meshgrid", UserWarning)
        yield


class Detectron2:
    """Runs the library's network with our network's weights and rules. Raises ImportError without it.

    precision: None takes fp16 on a GPU and fp32 on a CPU, under autocast.
    """

    engine = "detectron2"

    def __init__(self, network: C4 | FPN, device: torch.device, precision: Precision | None = None) -> None:
        self.input: DetectionInput = network.input
        self.width, self.things, self.device = network.width, network.things, device
        self.precision = precision or (fastest_precision(device) if device.type != "cpu" else "fp32")
        self._model = _build_model(network).to(device).eval()
        self._pyramid = isinstance(network, FPN)

    @torch.inference_mode()
    def detect(self, planes: Tensor) -> list[Regions]:
        """Finds the regions of pictures uint8 (N, 3, H, W), blue first: in their pixels, the best first."""
        half = HALVES.get(self.precision)
        with silence_deprecations(), torch.autocast(self.device.type, half, enabled=half is not None):
            pictures = self._model.preprocess_image([{"image": picture} for picture in planes])
            maps = self._model.backbone(pictures.tensor)
            proposals, _ = self._model.proposal_generator(pictures, maps, None)
            instances, _ = self._model.roi_heads(pictures, maps, proposals, None)
            features = self._compute_features(maps, [one.pred_boxes for one in instances]).float()
        rows = torch.split(features, [len(one) for one in instances])
        return [
            Regions(one.pred_boxes.tensor.float(), one.scores.float(), one.pred_classes, row)
            for one, row in zip(instances, rows, strict=True)
        ]

    def _compute_features(self, maps: dict[str, Tensor], boxes: list[Any]) -> Tensor:
        """Computes features (B, width) as the library's own heads do before they classify."""
        heads = self._model.roi_heads
        if self._pyramid:
            bins = heads.box_pooler([maps[name] for name in heads.box_in_features], boxes)
            features: Tensor = heads.box_head(bins)
        else:
            bins = heads._shared_roi_transform([maps[name] for name in heads.in_features], boxes)
            features = bins.mean((2, 3))
        return features


def _build_model(network: C4 | FPN) -> Any:
    with silence_deprecations():
        from detectron2.config import get_cfg
        from detectron2.modeling import build_model

    rules = {
        "MODEL.DEVICE": "cpu",  # it moves where its caller wants it
        "MODEL.WEIGHTS": "",
        "MODEL.ROI_HEADS.NUM_CLASSES": network.things,
        "MODEL.RPN.PRE_NMS_TOPK_TEST": network.proposals.before,
        "MODEL.RPN.POST_NMS_TOPK_TEST": network.proposals.after,
        "MODEL.RPN.NMS_THRESH": network.proposals.overlap,
        "MODEL.ROI_HEADS.SCORE_THRESH_TEST": network.rule.score,
        "MODEL.ROI_HEADS.NMS_THRESH_TEST": network.rule.overlap,
        "TEST.DETECTIONS_PER_IMAGE": network.rule.most,
    }
    settings = get_cfg()
    settings.merge_from_list([part for pair in {**SETTINGS[type(network)], **rules}.items() for part in pair])
    model = build_model(settings)
    model.load_state_dict(network.state_dict(), strict=True)
    return model
