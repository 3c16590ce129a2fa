"""ResNet and ResNeXt: pictures to maps, features and ImageNet's classes.

He et al., CVPR 2016 (arXiv:1512.03385), with the stride in the 3×3 convolution as torchvision has it
("ResNet v1.5"), and Xie et al., CVPR 2017 (arXiv:1611.05431). Parameters are named as in torchvision's
checkpoints. Input: float (N, 3, H, W), RGB / 255, less the mean, by the deviation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.checkpoint import Checkpoint, bare, classes, load

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHANNELS = 2048
EXPANSION = 4


@dataclass(frozen=True)
class Layout:
    """depths: blocks of the four stages; groups, group_width: of the 3×3 convolutions (ResNeXt's 32×8d)."""

    depths: tuple[int, int, int, int]
    groups: int = 1
    group_width: int = 64


LAYOUTS = {
    "resnet50": Layout((3, 4, 6, 3)),
    "resnet101": Layout((3, 4, 23, 3)),
    "resnet152": Layout((3, 8, 36, 3)),
    "resnext50_32x4d": Layout((3, 4, 6, 3), 32, 4),
    "resnext101_32x8d": Layout((3, 4, 23, 3), 32, 8),
    "resnext101_64x4d": Layout((3, 4, 23, 3), 64, 4),
}


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """grid: (N, 2048, H/32, W/32), rounded up; pooled: (N, 2048), its mean; logits: (N, 1000)."""

    grid: Tensor
    pooled: Tensor
    logits: Tensor


class Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 beside a shortcut, which is a 1×1 of its own where the shape changes."""

    def __init__(self, inputs: int, stage_width: int, stride: int, layout: Layout) -> None:
        super().__init__()
        width, outputs = stage_width * layout.group_width // 64 * layout.groups, stage_width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, groups=layout.groups, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """The network of one of LAYOUTS."""

    def __init__(self, layout: Layout, classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = _stage(64, 64, 1, layout.depths[0], layout)
        self.layer2 = _stage(256, 128, 2, layout.depths[1], layout)
        self.layer3 = _stage(512, 256, 2, layout.depths[2], layout)
        self.layer4 = _stage(1024, 512, 2, layout.depths[3], layout)
        self.fc = nn.Linear(CHANNELS, classes)

    def forward(self, pictures: Tensor) -> PictureFeatures:
        x = self.maxpool(F.relu(self.bn1(self.conv1(pictures))))
        grid = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled = grid.mean((2, 3))
        return PictureFeatures(grid, pooled, self.fc(pooled))


def _stage(inputs: int, width: int, stride: int, depth: int, layout: Layout) -> nn.Sequential:
    first = Bottleneck(inputs, width, stride, layout)
    return nn.Sequential(first, *(Bottleneck(width * EXPANSION, width, 1, layout) for _ in range(depth - 1)))


def from_checkpoint(name: str, checkpoint: Checkpoint) -> ResNet:
    """The network of that name in LAYOUTS with torchvision's weights, to evaluate. Raises WrongCheckpoint."""
    parameters = bare(checkpoint)
    return load(ResNet(LAYOUTS[name], classes(parameters, "fc.weight")), parameters)
