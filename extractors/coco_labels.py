"""COCO's classes (Lin et al., 2014, arXiv:1405.0312): by their numbers, and as those who count them do."""

from __future__ import annotations

from torchvision.models.detection import FasterRCNN_ResNet50_FPN_Weights

UNUSED = "N/A"
_BY_NUMBER: tuple[str, ...] = tuple(FasterRCNN_ResNet50_FPN_Weights.COCO_V1.meta["categories"])
#: Column k is the class of number k + 1; ten numbers name nothing.
COCO_90: tuple[str, ...] = _BY_NUMBER[1:]
#: The same without the ten: detectron2's order.
COCO_80: tuple[str, ...] = tuple(name for name in COCO_90 if name != UNUSED)
