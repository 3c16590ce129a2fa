"""Clip networks over windows of a video: 3D-ResNeXt-101 and ir-CSN-152.

Streams: the pooled vector, the last map cell by cell (the mean over its steps of time), the classes' logits.
"""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from extractors import csn, resnet3d
from extractors.csn import IrCsn
from extractors.framing import Framing
from extractors.initial import lively
from extractors.network_extractor import NetworkExtractor, Normalised, Plan, cells
from extractors.options import ExtractorOptions
from extractors.resnet3d import ResNet3D
from extractors.weights import obtain
from extractors.windows import Windows

RESNEXT = Plan(
    name="resnext101_3d",
    network="3d-resnext-101 (2018)",
    outputs=("", "_grid", "_logits"),
    width=2048,
    framing=Framing(112, 112, rounding="even"),
    values="RGB, x - mean of ActivityNet; map: mean over time",
    windows=Windows(stack_size=16, step_size=16),
    batch=(1, 16),
)
IR_CSN = Plan(
    name="ircsn152",
    network="ir-csn-152",
    outputs=("", "_grid", "_logits"),
    width=csn.CHANNELS,
    framing=Framing(256, 224),
    values="RGB, (x / 255 - mean) / deviation of Kinetics; map: mean over time",
    windows=Windows(stack_size=32, step_size=32),
    batch=(1, 8),
)


class FromBytes(nn.Module):
    """Windows of bytes (N, S, h, w, 3) to the pooled vector, the map's cells and the logits."""

    def __init__(self, network: ResNet3D | IrCsn, normalised: Normalised) -> None:
        super().__init__()
        self.network, self.normalised = network, normalised

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.network(self.normalised(stacks))
        return features.pooled, cells(features.grid), features.logits


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """``resnext101_3d`` or ``ircsn152``. Raises WeightsError."""
    if name == RESNEXT.name:
        build = partial(resnet3d.from_checkpoint, "resnext101")
        resnext, sha256 = obtain(
            name, options.weights, build, lambda: lively(ResNet3D(resnet3d.LAYOUTS["resnext101"]), ".bn3")
        )
        module = FromBytes(resnext, Normalised(resnet3d.MEAN_2018, (1.0, 1.0, 1.0), scale=1.0))
        return NetworkExtractor(RESNEXT, module, resnext.fc.out_features, sha256, options)
    network, sha256 = obtain(name, options.weights, csn.from_checkpoint, lambda: lively(IrCsn(), ".conv3.1"))
    module = FromBytes(network, Normalised(csn.MEAN, csn.DEVIATION))
    return NetworkExtractor(IR_CSN, module, network.fc.out_features, sha256, options)
