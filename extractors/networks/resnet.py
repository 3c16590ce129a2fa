"""ResNet and ResNeXt: pictures to maps, features and ImageNet's classes.

He et al., CVPR 2016 (arXiv:1512.03385), and Xie et al., CVPR 2017 (arXiv:1611.05431), as torchvision builds
them, with the stride in the 3×3 convolution ("ResNet v1.5"). Input: float (N, 3, H, W), RGB / 255, less the
mean, by the deviation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torchvision.models import resnet as library

from extractors.pretrained.parameters import Checkpoint, classes, load_strict, unwrap

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHANNELS = 2048

Bottleneck = library.Bottleneck


@dataclass(frozen=True)
class ResNetLayout:
    """depths: blocks of the four stages; groups, group_width: of the 3×3 convolutions (ResNeXt's 32×8d)."""

    depths: tuple[int, int, int, int]
    groups: int = 1
    group_width: int = 64


LAYOUTS: Mapping[str, ResNetLayout] = {
    "resnet50": ResNetLayout((3, 4, 6, 3)),
    "resnet101": ResNetLayout((3, 4, 23, 3)),
    "resnet152": ResNetLayout((3, 8, 36, 3)),
    "resnext50_32x4d": ResNetLayout((3, 4, 6, 3), 32, 4),
    "resnext101_32x8d": ResNetLayout((3, 4, 23, 3), 32, 8),
    "resnext101_64x4d": ResNetLayout((3, 4, 23, 3), 64, 4),
}


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """grid: (N, 2048, H/32, W/32), rounded up; pooled: (N, 2048), its mean; logits: (N, 1000)."""

    grid: Tensor
    pooled: Tensor
    logits: Tensor


class ResNet(library.ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's network of one of LAYOUTS, which also returns its last map and that map's mean."""

    def __init__(self, layout: ResNetLayout, classes: int = 1000) -> None:
        super().__init__(
            Bottleneck, layout.depths, classes, groups=layout.groups, width_per_group=layout.group_width
        )

    def forward(self, pictures: Tensor) -> PictureFeatures:
        x = self.maxpool(self.relu(self.bn1(self.conv1(pictures))))
        grid = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled = grid.mean((2, 3))
        return PictureFeatures(grid, pooled, self.fc(pooled))


def from_checkpoint(name: str, checkpoint: Checkpoint) -> ResNet:
    """The network of that name in LAYOUTS with torchvision's weights, to evaluate. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    return load_strict(ResNet(LAYOUTS[name], classes(parameters, "fc.weight")), parameters)
