"""Computes features of clips by ir-CSN-152, whose 3×3×3 convolutions are of one channel each.

Tran et al., "Video Classification with Channel-Separated Convolutional Networks", ICCV 2019
(arXiv:1904.02811), interaction-reduced. Parameters are named as in facebookresearch/VMZ's checkpoints.
Input: float (N, 3, T, H, W), RGB / 255, less MEAN, by DEVIATION; 32 frames of 224×224 in the paper.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.networks.resnet3d import ClipFeatures
from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap

MEAN, DEVIATION = (0.43216, 0.394666, 0.37645), (0.22803, 0.22145, 0.216989)
CHANNELS = 2048
DEPTHS = (3, 8, 36, 3)


def _conv_norm(
    inputs: int, outputs: int, kernel: int, stride: int = 1, depthwise: bool = False
) -> nn.Sequential:
    """Builds a convolution and its batch norm, whose epsilon is Caffe2's."""
    groups = inputs if depthwise else 1
    conv = nn.Conv3d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm3d(outputs, eps=1e-3))


class CsnBottleneck(nn.Module):
    """1×1×1, a 3×3×3 for every channel alone, 1×1×1 beside a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * 4
        self.conv1 = _conv_norm(inputs, width, 1)
        self.conv2 = _conv_norm(width, width, 3, stride, depthwise=True)
        self.conv3 = _conv_norm(width, outputs, 1)
        same = stride == 1 and inputs == outputs
        self.downsample = nn.Identity() if same else _conv_norm(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv2(F.relu(self.conv1(x))))
        return F.relu(self.conv3(y) + self.downsample(x))


class IrCsn(nn.Module):
    """Computes ClipFeatures of clips. Its map has T/8 steps: the stem keeps time, three stages halve it."""

    def __init__(self, classes: int = 400) -> None:
        super().__init__()
        stem = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
        self.stem = nn.Sequential(
            stem, nn.BatchNorm3d(64, eps=1e-3), nn.ReLU(), nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        )
        self.layer1 = _build_stage(64, 64, 1, DEPTHS[0])
        self.layer2 = _build_stage(256, 128, 2, DEPTHS[1])
        self.layer3 = _build_stage(512, 256, 2, DEPTHS[2])
        self.layer4 = _build_stage(1024, 512, 2, DEPTHS[3])
        self.fc = nn.Linear(CHANNELS, classes)

    def forward(self, clips: Tensor) -> ClipFeatures:
        grid = self.layer4(self.layer3(self.layer2(self.layer1(self.stem(clips)))))
        pooled = grid.mean((2, 3, 4))
        return ClipFeatures(grid, pooled, self.fc(pooled))


def _build_stage(inputs: int, width: int, stride: int, depth: int) -> nn.Sequential:
    first = CsnBottleneck(inputs, width, stride)
    return nn.Sequential(first, *(CsnBottleneck(width * 4, width, 1) for _ in range(depth - 1)))


def from_checkpoint(checkpoint: Checkpoint) -> IrCsn:
    """Loads the network with VMZ's weights, in eval mode. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    return load_strict(IrCsn(count_classes(parameters, "fc.weight")), parameters)
