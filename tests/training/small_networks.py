"""The papers' extractors as they are, with networks of random weights that are small enough for a test.

Windows, crops, boxes, ROI align, sound and name tags are the extractors' own; blocks are fewer, pictures
smaller. Widths of the streams stay the networks': captioners are made for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models.detection.backbone_utils import resnet_fpn_backbone
from torchvision.ops import roi_pool

from app.pipeline.engine import Engine
from app.settings import Settings
from extractors.catalog import clip_networks, detectors, i3d, imagenet, torchvision_detectors
from extractors.detection import backbone
from extractors.detection.bottom_up import BottomUp
from extractors.detection.proposals import ProposalRule
from extractors.extractor import create
from extractors.networks import csn, resnet3d
from extractors.networks import imagenet as picture_networks
from extractors.networks.c3d import C3D, C3DFeatures
from extractors.networks.i3d import I3D, LogitsHead
from extractors.networks.imagenet import InceptionV4, ResNetLayout
from extractors.networks.resnet3d import ResNet3DLayout
from extractors.preprocessing.images import ResizeAndCrop
from models.feature_sources import feature_source

#: Puts a value in the place of a module's own: ``setattr``, or ``MonkeyPatch.setattr``.
Put: TypeAlias = Callable[[Any, str, Any], None]
ONE_EACH = (1, 1, 1, 1)
SIDE = 40


class SmallC3D(C3D):
    """The maps and vectors of C3D, with hardly anything between them."""

    def __init__(self, classes: int = 8) -> None:
        nn.Module.__init__(self)
        for name, inputs, outputs in (
            *(("conv1", 3, 4), ("conv2", 4, 128), ("conv3a", 128, 4), ("conv3b", 4, 256)),
            *(("conv4a", 256, 4), ("conv4b", 4, 512), ("conv5a", 512, 4), ("conv5b", 4, 512)),
        ):
            self.add_module(name, nn.Conv3d(inputs, outputs, 3, padding=1))
        self.pool5 = nn.MaxPool3d(2, 2, padding=(0, 1, 1))
        self.fc6, self.fc7 = nn.Linear(512 * 4 * 4, 16), nn.Linear(16, 4096)
        self.fc8 = nn.Linear(4096, classes)

    def forward(self, clips: Tensor) -> C3DFeatures:
        """Gives features of about 1, as trained weights do; random ones leave bytes as large as they are."""
        return super().forward(clips / 255)


class SmallI3D(I3D):
    """Takes pictures of any size; its head averages the whole map."""

    def run_head(self, grid: Tensor) -> LogitsHead:
        pooled = F.avg_pool3d(grid, (2, *grid.shape[3:]), 1)
        per_step = self.logits(pooled).mean((3, 4))
        return LogitsHead(pooled, pooled.mean((2, 3, 4)), per_step, per_step.mean(2))


class SmallBottomUp(BottomUp):
    """A few proposals of small pictures, each of 2 × 2 bins."""

    input = replace(BottomUp.input, shortest=SIDE, longest=2 * SIDE)
    proposals = ProposalRule(50, 12)
    bins = (1024, 2, 2)

    def __init__(self) -> None:
        super().__init__(classes=21, attributes=9)
        self.roi_heads.res5 = backbone.build_stage(5, 1, 1, dilation=2)

    def pool(self, maps: Any, boxes: Any) -> Tensor:
        return roi_pool(maps["res4"], list(boxes), 2, 1 / 16)  # type: ignore[no-any-return]


def build_small_detector(name: str, kinds: int = 91) -> Any:
    """torchvision's detector on small pictures; whatever it finds is kept, however unsure."""
    return torchvision_detectors.MAKERS[name](
        resnet_fpn_backbone(backbone_name="resnet50", weights=None),
        kinds,
        min_size=SIDE,
        max_size=2 * SIDE,
        rpn_pre_nms_top_n_test=50,
        rpn_post_nms_top_n_test=12,
        box_score_thresh=0.0,
        box_detections_per_img=10,
    )


class SmallInceptionV4(InceptionV4):
    """One of each kind of block, where the network repeats them."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__(classes)
        blocks = self.network.features
        kept = [*range(7), 10, 11, 18, 19]  # the stem, then A, its reduction, B, its reduction, C
        self.network.features = nn.Sequential(*(blocks[place] for place in kept))


#: In the place of what makes extractors of a stream set.
create_small = partial(create, weights="seeded", engine="torch")


def install(put: Put) -> None:
    """Puts the small networks in the places of the large ones."""
    put(feature_source, "create", create_small)
    layouts = dict.fromkeys(picture_networks.LAYOUTS, ResNetLayout(ONE_EACH, 1, 8))
    put(picture_networks, "LAYOUTS", layouts)
    sides = {name: 76 if name == "inception_v4" else SIDE for name in imagenet.PLANS}
    plans = {name: _shrink(plan, sides[name]) for name, plan in imagenet.PLANS.items()}
    put(imagenet, "PLANS", plans)
    put(imagenet, "InceptionV4", SmallInceptionV4)
    put(resnet3d, "LAYOUTS", {"resnext101": ResNet3DLayout(ONE_EACH, width=128, expansion=2, groups=32)})
    put(clip_networks, "RESNEXT_PLAN", _shrink(clip_networks.RESNEXT_PLAN, SIDE))
    put(csn, "DEPTHS", ONE_EACH)
    put(clip_networks, "IR_CSN_PLAN", _shrink(clip_networks.IR_CSN_PLAN, SIDE))
    put(clip_networks, "C3D", SmallC3D)
    put(i3d, "I3D", SmallI3D)
    put(i3d, "RGB", _shrink(i3d.RGB, SIDE))
    put(backbone, "DEPTHS", ONE_EACH)
    families = {
        **detectors.FAMILIES,
        "bottom_up": replace(detectors.FAMILIES["bottom_up"], blank=SmallBottomUp),
    }
    put(detectors, "FAMILIES", families)
    put(torchvision_detectors, "build_untrained", build_small_detector)


def _shrink(plan: Any, side: int) -> Any:
    return replace(plan, framing=ResizeAndCrop(side, side))


class SmallEngine(Engine):
    """The service's engine on the small networks, in a process of its own."""

    def __init__(self, settings: Settings) -> None:
        install(setattr)
        torch.manual_seed(0)
        super().__init__(settings)
