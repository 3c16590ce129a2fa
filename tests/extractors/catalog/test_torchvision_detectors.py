"""Faster and Mask R-CNN compute what the library does when it loads its own published file."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torchvision.models import detection
from torchvision.models.detection import FasterRCNN

from extractors.catalog.torchvision_detectors import build_untrained, from_checkpoint
from extractors.pretrained.errors import WrongCheckpoint

Enum = type[detection.FasterRCNN_ResNet50_FPN_Weights] | type[detection.MaskRCNN_ResNet50_FPN_Weights]
LIBRARY: Mapping[str, tuple[Callable[..., FasterRCNN], Enum]] = {
    "faster_rcnn": (detection.fasterrcnn_resnet50_fpn, detection.FasterRCNN_ResNet50_FPN_Weights),
    "mask_rcnn": (detection.maskrcnn_resnet50_fpn, detection.MaskRCNN_ResNet50_FPN_Weights),
}


def as_published(name: str) -> dict[str, Tensor]:
    """A file of weights under the names of 2019, with norms whose epsilon shows."""
    torch.manual_seed(3)
    state = build_untrained(name).state_dict()
    for key, value in state.items():
        if key.endswith("running_var"):
            value.uniform_(1e-5, 1e-4)
        elif key.endswith((".bn1.weight", ".bn2.weight", ".bn3.weight", "downsample.1.weight")):
            value.uniform_(1e-3, 4e-3)
    return {_old_name(key): value for key, value in state.items()}


def _old_name(key: str) -> str:
    key = re.sub(r"(inner_blocks\.\d|layer_blocks\.\d)\.0\.", r"\1.", key)
    return key.replace("rpn.head.conv.0.0.", "rpn.head.conv.")


@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_says_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, enum = LIBRARY[name]
    published = as_published(name)
    assert "rpn.head.conv.weight" in published

    def get_state_dict(self: Any, *arguments: Any, **options: Any) -> dict[str, Tensor]:
        return dict(published)

    monkeypatch.setattr(enum, "get_state_dict", get_state_dict)
    theirs, ours = make(weights=enum.COCO_V1).eval(), from_checkpoint(name, published)
    picture = torch.rand(1, 3, 64, 96)
    with torch.inference_mode():
        wanted, got = theirs.backbone(picture), ours.backbone(picture)
        assert got.keys() == wanted.keys()
        for level, grid in wanted.items():
            assert (got[level] - grid).abs().max() <= 1e-5 * grid.abs().max(), level
    for key, value in theirs.state_dict().items():
        torch.testing.assert_close(ours.state_dict()[key], value, rtol=0, atol=0)


def test_the_newer_names_are_read_too() -> None:
    state = build_untrained("faster_rcnn", 3).state_dict()
    assert from_checkpoint("faster_rcnn", state).roi_heads.box_predictor.cls_score.out_features == 3


def test_another_networks_checkpoint_is_refused() -> None:
    with pytest.raises(WrongCheckpoint, match=r"cls_score\.weight"):
        from_checkpoint("faster_rcnn", {"conv1.weight": torch.zeros(1)})
