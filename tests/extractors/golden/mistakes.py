"""The mistakes of sensitivity.json, each made on purpose in our own networks.

All are patches that are taken back, for the next test is given the same network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchvision.models.resnet import Bottleneck

from extractors.networks import i3d
from extractors.networks.efficientnet_lite import compute_same_padding
from extractors.networks.i3d import Size
from extractors.preprocessing import log_mel

Spoil = Callable[[pytest.MonkeyPatch, nn.Module, dict[str, Tensor]], None]


def epsilon(value: float) -> Spoil:
    def spoil(patch: pytest.MonkeyPatch, network: nn.Module, _inputs: dict[str, Tensor]) -> None:
        for layer in network.modules():
            if isinstance(layer, _BatchNorm):
                patch.setattr(layer, "eps", value)

    return spoil


def symmetric(layer: type[nn.Module]) -> Spoil:
    """I3D's layers of this type padded alike on both sides, whatever the size, where a kernel is odd."""

    def padded(x: Tensor, kernel: Size, stride: Size) -> Tensor:
        axes = zip(x.shape[2:], kernel, stride, strict=True)
        zeros = [(k // 2, k // 2) if k % 2 else compute_same_padding(n, k, s) for n, k, s in axes]
        return F.pad(x, (*zeros[2], *zeros[1], *zeros[0]))

    def forward(self: Any, x: Tensor) -> Tensor:
        x = padded(x, self.kernel, self.stride)
        if isinstance(self, i3d.ConvNormReLU):
            return F.relu(self.norm(self.conv(x)))
        return F.max_pool3d(x, self.kernel, self.stride)

    return lambda patch, _network, _inputs: patch.setattr(layer, "forward", forward)


def stride_in_the_first(patch: pytest.MonkeyPatch, network: nn.Module, _inputs: dict[str, Tensor]) -> None:
    for block in network.modules():
        if isinstance(block, Bottleneck):
            first, second = block.conv1.stride, block.conv2.stride
            patch.setattr(block.conv1, "stride", second)
            patch.setattr(block.conv2, "stride", first)


def reversed_along(axis: int) -> Spoil:
    def spoil(_patch: pytest.MonkeyPatch, _network: nn.Module, inputs: dict[str, Tensor]) -> None:
        inputs.update({name: value.flip(axis) for name, value in inputs.items()})

    return spoil


def pool5_after_only(patch: pytest.MonkeyPatch, network: nn.Module, _inputs: dict[str, Tensor]) -> None:
    pool = nn.Sequential(nn.ConstantPad3d((0, 1, 0, 1, 0, 0), 0.0), nn.MaxPool3d(2, 2))
    patch.setattr(network, "pool5", pool)


def padding_counted(patch: pytest.MonkeyPatch, network: nn.Module, _inputs: dict[str, Tensor]) -> None:
    for layer in network.modules():
        if isinstance(layer, nn.AvgPool2d):
            patch.setattr(layer, "count_include_pad", True)


def flattened_channels_first(
    patch: pytest.MonkeyPatch, network: nn.Module, _inputs: dict[str, Tensor]
) -> None:
    """VGGish's last map is of 6×4 cells and 512 channels."""
    embeddings = network.get_submodule("network.embeddings")
    right = embeddings.forward

    def forward(rows: Tensor) -> Tensor:
        mistaken: Tensor = right(rows.reshape(-1, 6, 4, 512).permute(0, 3, 1, 2).flatten(1))
        return mistaken

    patch.setattr(embeddings, "forward", forward)


def symmetric_hann(patch: pytest.MonkeyPatch, _network: nn.Module, _inputs: dict[str, Tensor]) -> None:
    window = np.hanning(len(log_mel._periodic_hann()))
    patch.setattr(log_mel, "_periodic_hann", lambda: window)


#: By the words of sensitivity.json.
MISTAKES: Mapping[str, Spoil] = {
    "BatchNorm eps 1e-5 instead of 1e-3": epsilon(1e-5),
    "BatchNorm eps 1e-3 instead of 1e-5": epsilon(1e-3),
    "symmetric padding k//2 in convolutions": symmetric(i3d.ConvNormReLU),
    "symmetric padding in max pools": symmetric(i3d.MaxPoolSame),
    "stride in the first 1x1 (Caffe style)": stride_in_the_first,
    "channels reversed (BGR for RGB)": reversed_along(1),
    "frames reversed": reversed_along(2),
    "pool5 padded after only": pool5_after_only,
    "average pools count the padding": padding_counted,
    "flattened C,H,W instead of H,W,C": flattened_channels_first,
    "symmetric Hann window": symmetric_hann,
}
