"""Clip networks over windows of a video: 3D-ResNeXt-101 and ir-CSN-152.

Streams: the pooled vector, the last map cell by cell (the mean over its steps of time), the classes' logits.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from extractors.extractor import ExtractorOptions
from extractors.networks import csn, resnet3d
from extractors.networks.csn import IrCsn
from extractors.networks.resnet3d import ResNet3D
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import random_weights
from extractors.windowing.network_extractor import (
    NetworkExtractor,
    NetworkPlan,
    NormalizeStacks,
    flatten_cells,
)
from extractors.windows import Windows

RESNEXT = NetworkPlan(
    name="resnext101_3d",
    network="3d-resnext-101 (2018)",
    outputs=("", "_grid", "_logits"),
    width=2048,
    framing=ResizeAndCrop(112, 112, rounding="even"),
    values="RGB, x - mean of ActivityNet; map: mean over time",
    windows=Windows(stack_size=16, step_size=16),
    batch=(1, 16),
)
IR_CSN = NetworkPlan(
    name="ircsn152",
    network="ir-csn-152",
    outputs=("", "_grid", "_logits"),
    width=csn.CHANNELS,
    framing=ResizeAndCrop(256, 224),
    values="RGB, (x / 255 - mean) / deviation of Kinetics; map: mean over time",
    windows=Windows(stack_size=32, step_size=32),
    batch=(1, 8),
)


class ClipsFromBytes(nn.Module):
    """Windows of bytes (N, S, h, w, 3) to the pooled vector, the map's cells and the logits."""

    def __init__(self, network: ResNet3D | IrCsn, normalised: NormalizeStacks) -> None:
        super().__init__()
        self.network, self.normalised = network, normalised

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.network(self.normalised(stacks))
        return features.pooled, flatten_cells(features.grid), features.logits


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """``resnext101_3d`` or ``ircsn152``. Raises WeightsError."""
    if name == RESNEXT.name:
        build = partial(resnet3d.from_checkpoint, "resnext101")
        resnext, sha256 = load_pretrained(
            name,
            options.weights,
            build,
            lambda: random_weights(ResNet3D(resnet3d.LAYOUTS["resnext101"]), ".bn3"),
        )
        module = ClipsFromBytes(resnext, NormalizeStacks(resnet3d.MEAN_2018, (1.0, 1.0, 1.0), scale=1.0))
        return NetworkExtractor(RESNEXT, module, resnext.fc.out_features, sha256, options)
    network, sha256 = load_pretrained(
        name, options.weights, csn.from_checkpoint, lambda: random_weights(IrCsn(), ".conv3.1")
    )
    module = ClipsFromBytes(network, NormalizeStacks(csn.MEAN, csn.DEVIATION))
    return NetworkExtractor(IR_CSN, module, network.fc.out_features, sha256, options)
