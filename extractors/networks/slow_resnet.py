"""Computes features of clips by pytorchvideo's slow_r50 and i3d_r50, ResNet-50 over clips.

The slow pathway of Feichtenhofer et al., "SlowFast Networks for Video Recognition", ICCV 2019
(arXiv:1812.03982), and the inflated ResNet of Wang et al., "Non-local Neural Networks", CVPR 2018
(arXiv:1711.07971). Parameters are named as in pytorchvideo's checkpoints, which need not be installed.
Input: float (N, 3, T, H, W), RGB / 255, less MEAN, by DEVIATION; 8 frames of 224×224.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap

MEAN, DEVIATION = (0.45, 0.45, 0.45), (0.225, 0.225, 0.225)
CHANNELS = 2048
DEPTHS = (3, 4, 6, 3)


@dataclass(frozen=True)
class SlowLayout:
    """Describes the kernels along time."""

    stem: int  #: frames of the first kernel
    #: For each stage the frames of its blocks' first kernels, taken in turn.
    temporal: tuple[tuple[int, ...], ...]
    pooled: bool  #: whether time is halved after the first stage
    head: tuple[int, int, int]  #: frames, rows and columns of the average pool


LAYOUTS = {
    "slow_r50": SlowLayout(1, ((1,), (1,), (3,), (3,)), pooled=False, head=(8, 7, 7)),
    "i3d_r50": SlowLayout(5, ((3,), (3, 1), (3, 1), (1, 3)), pooled=True, head=(4, 7, 7)),
}


@dataclass(frozen=True, eq=False)
class SlowFeatures:
    """Holds the maps, averages and logits of a batch of clips."""

    grid: Tensor  #: (N, 2048, T′, H/32, W/32), T′ = T, or T/2 of i3d_r50
    head_pool: Tensor  #: (N, 2048, T″, H″, W″), averages over the head's windows
    pooled: Tensor  #: (N, 2048), their mean
    logits: Tensor  #: (N, classes), projected, then averaged


class _Branch(nn.Module):
    """frames×1×1, 1×3×3 (which strides), 1×1×1."""

    def __init__(self, inputs: int, width: int, frames: int, stride: int) -> None:
        super().__init__()
        self.conv_a = nn.Conv3d(inputs, width, (frames, 1, 1), padding=(frames // 2, 0, 0), bias=False)
        self.norm_a = nn.BatchNorm3d(width)
        self.conv_b = nn.Conv3d(width, width, (1, 3, 3), (1, stride, stride), (0, 1, 1), bias=False)
        self.norm_b = nn.BatchNorm3d(width)
        self.conv_c = nn.Conv3d(width, width * 4, 1, bias=False)
        self.norm_c = nn.BatchNorm3d(width * 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm_a(self.conv_a(x)))
        x = F.relu(self.norm_b(self.conv_b(x)))
        y: Tensor = self.norm_c(self.conv_c(x))
        return y


class _Block(nn.Module):
    def __init__(self, inputs: int, width: int, frames: int, stride: int) -> None:
        super().__init__()
        self.changes = stride != 1 or inputs != width * 4
        if self.changes:
            self.branch1_conv = nn.Conv3d(inputs, width * 4, 1, (1, stride, stride), bias=False)
            self.branch1_norm = nn.BatchNorm3d(width * 4)
        self.branch2 = _Branch(inputs, width, frames, stride)

    def forward(self, x: Tensor) -> Tensor:
        shortcut = self.branch1_norm(self.branch1_conv(x)) if self.changes else x
        return F.relu(shortcut + self.branch2(x))


class _Stem(nn.Module):
    def __init__(self, frames: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(3, 64, (frames, 7, 7), (1, 2, 2), (frames // 2, 3, 3), bias=False)
        self.norm = nn.BatchNorm3d(64)

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool3d(F.relu(self.norm(self.conv(x))), (1, 3, 3), (1, 2, 2), (0, 1, 1))


class _Stage(nn.Module):
    def __init__(self, inputs: int, width: int, temporal: tuple[int, ...], stride: int, depth: int) -> None:
        super().__init__()
        blocks = [_Block(inputs, width, temporal[0], stride)]
        blocks += [_Block(width * 4, width, temporal[i % len(temporal)], 1) for i in range(1, depth)]
        self.res_blocks = nn.Sequential(*blocks)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.res_blocks(x)
        return y


class _Head(nn.Module):
    """Projects at every position of the average pool, then averages."""

    def __init__(self, window: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.window = window
        self.proj = nn.Linear(CHANNELS, classes)

    def forward(self, grid: Tensor) -> SlowFeatures:
        positions = F.avg_pool3d(grid, self.window, 1)
        logits = self.proj(positions.permute(0, 2, 3, 4, 1)).mean((1, 2, 3))
        return SlowFeatures(grid, positions, positions.mean((2, 3, 4)), logits)


class SlowResNet(nn.Module):
    """Computes SlowFeatures by the network of one of LAYOUTS."""

    def __init__(self, layout: SlowLayout, classes: int = 400) -> None:
        super().__init__()
        stages: list[nn.Module] = []
        for stage, (temporal, depth) in enumerate(zip(layout.temporal, DEPTHS, strict=True)):
            inputs, stride = (64, 1) if stage == 0 else (256 * 2 ** (stage - 1), 2)
            stages.append(_Stage(inputs, 64 * 2**stage, temporal, stride, depth))
        if layout.pooled:
            stages.insert(1, nn.MaxPool3d((2, 1, 1)))
        self.blocks = nn.Sequential(_Stem(layout.stem), *stages, _Head(layout.head, classes))

    def forward(self, clips: Tensor) -> SlowFeatures:
        features: SlowFeatures = self.blocks(clips)
        return features


def from_checkpoint(name: str, checkpoint: Checkpoint) -> SlowResNet:
    """Loads the network of that name in LAYOUTS with its published weights. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    layout = LAYOUTS[name]
    head = 1 + len(DEPTHS) + layout.pooled
    return load_strict(
        SlowResNet(layout, count_classes(parameters, f"blocks.{head}.proj.weight")), parameters
    )
