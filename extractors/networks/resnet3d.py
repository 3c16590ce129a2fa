"""Computes features of clips of 16 frames of 112×112 by 3D ResNet and 3D ResNeXt.

Hara, Kataoka and Satoh, "Can Spatiotemporal 3D CNNs Retrace the History of 2D CNNs and ImageNet?",
CVPR 2018 (arXiv:1711.09577). Parameters are named as in the checkpoints of kenshohara/3D-ResNets-PyTorch
with their ``module.`` taken off. Input: float (N, 3, T, H, W), 0..255, less MEAN_2018 for files of 2018.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap

MEAN_2018 = (114.7748, 107.7354, 99.4750)


@dataclass(frozen=True)
class ResNet3DLayout:
    """Describes a variant."""

    depths: tuple[int, int, int, int]  #: blocks of the four stages
    basic: bool = False  #: two 3×3×3 a block, else a bottleneck
    width: int = 64  #: of the first stage's inner convolutions
    expansion: int = 4  #: from them to a stage's outputs
    groups: int = 1  #: of a bottleneck's 3×3×3


LAYOUTS = {
    "resnet18": ResNet3DLayout((2, 2, 2, 2), basic=True, expansion=1),
    "resnet34": ResNet3DLayout((3, 4, 6, 3), basic=True, expansion=1),
    "resnet50": ResNet3DLayout((3, 4, 6, 3)),
    "resnet101": ResNet3DLayout((3, 4, 23, 3)),
    "resnet152": ResNet3DLayout((3, 8, 36, 3)),
    "resnext50": ResNet3DLayout((3, 4, 6, 3), width=128, expansion=2, groups=32),
    "resnext101": ResNet3DLayout((3, 4, 23, 3), width=128, expansion=2, groups=32),
    "resnext152": ResNet3DLayout((3, 8, 36, 3), width=128, expansion=2, groups=32),
}


@dataclass(frozen=True, eq=False)
class ClipFeatures:
    """Holds a network's outputs.

    C is 2048, or 512 of 18 and 34 layers.
    """

    grid: Tensor  #: (N, C, T/16, H/32, W/32), rounded up
    pooled: Tensor  #: (N, C), its mean
    logits: Tensor  #: (N, classes)


class BasicBlock3D(nn.Module):
    """Two 3×3×3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, layout: ResNet3DLayout) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(inputs, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        self.conv2 = nn.Conv3d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm3d(width)
        self.downsample = _build_shortcut(inputs, width * layout.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class Bottleneck3D(nn.Module):
    """1×1×1, 3×3×3, 1×1×1 beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int, layout: ResNet3DLayout) -> None:
        super().__init__()
        outputs = width * layout.expansion
        self.conv1 = nn.Conv3d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm3d(width)
        self.conv2 = nn.Conv3d(width, width, 3, stride, 1, groups=layout.groups, bias=False)
        self.bn2 = nn.BatchNorm3d(width)
        self.conv3 = nn.Conv3d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm3d(outputs)
        self.downsample = _build_shortcut(inputs, outputs, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.downsample(x))


def _build_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    """Builds the paper's type B: a projection where the shape changes."""
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv3d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm3d(outputs))


class ResNet3D(nn.Module):
    """Computes ClipFeatures by the network of one of LAYOUTS."""

    def __init__(self, layout: ResNet3DLayout, classes: int = 400) -> None:
        super().__init__()
        self.conv1 = nn.Conv3d(3, 64, 7, (1, 2, 2), 3, bias=False)
        self.bn1 = nn.BatchNorm3d(64)
        self.maxpool = nn.MaxPool3d(3, 2, 1)
        widths = [layout.width * 2**stage for stage in range(4)]
        outputs = [64, *(width * layout.expansion for width in widths)]
        self.layer1 = _build_stage(outputs[0], widths[0], 1, layout.depths[0], layout)
        self.layer2 = _build_stage(outputs[1], widths[1], 2, layout.depths[1], layout)
        self.layer3 = _build_stage(outputs[2], widths[2], 2, layout.depths[2], layout)
        self.layer4 = _build_stage(outputs[3], widths[3], 2, layout.depths[3], layout)
        self.fc = nn.Linear(outputs[4], classes)

    def forward(self, clips: Tensor) -> ClipFeatures:
        x = self.maxpool(F.relu(self.bn1(self.conv1(clips))))
        grid = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled = grid.mean((2, 3, 4))
        return ClipFeatures(grid, pooled, self.fc(pooled))


def _build_stage(inputs: int, width: int, stride: int, depth: int, layout: ResNet3DLayout) -> nn.Sequential:
    block = BasicBlock3D if layout.basic else Bottleneck3D
    rest = (block(width * layout.expansion, width, 1, layout) for _ in range(depth - 1))
    return nn.Sequential(block(inputs, width, stride, layout), *rest)


def from_checkpoint(name: str, checkpoint: Checkpoint) -> ResNet3D:
    """Loads the network of that name in LAYOUTS, of as many classes as the file has, in eval mode.

    Raises WrongCheckpoint.
    """
    parameters = unwrap(checkpoint)
    return load_strict(ResNet3D(LAYOUTS[name], count_classes(parameters, "fc.weight")), parameters)
