"""torchvision's detectors from its published files, which are older than the names of its modules.

The library renames what they hold while it loads them, and with the files of 2019 (COCO_V1) also sets its
frozen norms' epsilon to 0, with which they were trained.
"""

from __future__ import annotations

import re
from functools import partial

from torchvision.models.detection import FasterRCNN, MaskRCNN
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops.misc import FrozenBatchNorm2d

from extractors.checkpoint import Checkpoint, bare, classes, load

MAKERS = {"faster_rcnn": FasterRCNN, "mask_rcnn": MaskRCNN}
#: Convolutions that have since been put into sequences: ``inner_blocks.0.weight`` is now ``….0.0.weight``.
OLD = (
    (re.compile(r"(backbone\.fpn\.(?:inner|layer)_blocks\.\d)\.(weight|bias)"), r"\1.0.\2"),
    (re.compile(r"(rpn\.head\.conv)\.(weight|bias)"), r"\1.0.0.\2"),
)
CLASSIFIER = "roi_heads.box_predictor.cls_score.weight"


def blank(name: str, kinds: int = 91) -> FasterRCNN:
    """The detector with initial weights. name: one of MAKERS; kinds: classes, the background among them."""
    norm = partial(FrozenBatchNorm2d, eps=0.0)
    backbone = resnet_fpn_backbone(backbone_name="resnet50", weights=None, norm_layer=norm)
    model: FasterRCNN = MAKERS[name](backbone, kinds)
    return model


def from_checkpoint(name: str, checkpoint: Checkpoint) -> FasterRCNN:
    """The detector in eval mode, by older or newer names. Raises WrongCheckpoint."""
    parameters = {_new_name(old): value for old, value in bare(checkpoint).items()}
    return load(blank(name, classes(parameters, CLASSIFIER)), parameters)


def _new_name(name: str) -> str:
    for old, new in OLD:
        if old.fullmatch(name):
            return old.sub(new, name)
    return name
