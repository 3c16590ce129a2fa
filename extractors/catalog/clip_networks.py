"""Extracts features of a video's windows by clip networks: C3D, 3D-ResNeXt-101 and ir-CSN-152.

Streams of the last two: the pooled vector, the last map cell by cell (the mean over its steps of time), the
classes' logits. C3D has ``c3d_fc6``, ``c3d_fc7`` and the pooled maps ``c3d_pool2`` to ``c3d_pool5``. A map of
it keeps its steps of time: its cells go step by step, then row by row, 8·28·28 of pool2, 4·14·14 of pool3,
2·7·7 of pool4, 1·4·4 of pool5. Each window of C3D is looked at alone, with zeros beyond its ends, as the
network was trained.
"""

from functools import partial

from torch import Tensor, nn

from extractors.extractor import ExtractorOptions
from extractors.networks import c3d, csn, resnet3d
from extractors.networks.c3d import C3D
from extractors.networks.csn import IrCsn
from extractors.networks.resnet3d import ResNet3D
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import randomize
from extractors.windowing.network_extractor import (
    NetworkExtractor,
    NetworkPlan,
    NormalizeStacks,
    flatten_cells,
)
from extractors.windows import Windows

C3D_PLAN = NetworkPlan(
    name="c3d",
    network="c3d",
    outputs=("_fc7", "_fc6", "_pool2", "_pool3", "_pool4", "_pool5", "_logits"),
    width=4096,
    framing=ResizeAndCrop((128, 171), c3d.SIDE),
    values="RGB, 0..255 as it is; vectors after their ReLU",
    windows=Windows(stack_size=c3d.FRAMES, step_size=8),
    least=c3d.FRAMES,
    most=c3d.FRAMES,
)
RESNEXT_PLAN = NetworkPlan(
    name="resnext101_3d",
    network="3d-resnext-101 (2018)",
    outputs=("", "_grid", "_logits"),
    width=2048,
    framing=ResizeAndCrop(112, 112, rounding="even"),
    values="RGB, x - mean of ActivityNet; map: mean over time",
    windows=Windows(stack_size=16, step_size=16),
    batch=(1, 16),
)
IR_CSN_PLAN = NetworkPlan(
    name="ircsn152",
    network="ir-csn-152",
    outputs=("", "_grid", "_logits"),
    width=csn.CHANNELS,
    framing=ResizeAndCrop(256, 224),
    values="RGB, (x / 255 - mean) / deviation of Kinetics; map: mean over time",
    windows=Windows(stack_size=32, step_size=32),
    batch=(1, 8),
)


class C3DFromBytes(nn.Module):
    """Runs C3D on windows of bytes (N, 16, 112, 112, 3); returns the outputs of C3D_PLAN."""

    def __init__(self, network: C3D) -> None:
        super().__init__()
        self.network = network

    def forward(self, stacks: Tensor) -> tuple[Tensor, ...]:
        features = self.network(stacks.permute(0, 4, 1, 2, 3).float())
        maps = (features.pool2, features.pool3, features.pool4, features.pool5)
        rows = (grid.flatten(2).transpose(1, 2) for grid in maps)
        return (features.fc7, features.fc6, *rows, features.logits)


class ClipsFromBytes(nn.Module):
    """Runs a network on windows of bytes (N, S, h, w, 3).

    Returns the pooled vector, the map's cells and the logits.

    network: returns ``grid``, ``pooled`` and ``logits`` of clips (N, 3, S, h, w).
    """

    def __init__(self, network: nn.Module, normalised: NormalizeStacks) -> None:
        super().__init__()
        self.network, self.normalised = network, normalised

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.network(self.normalised(stacks))
        return features.pooled, flatten_cells(features.grid), features.logits


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """Makes the extractor ``c3d``, ``resnext101_3d`` or ``ircsn152``.

    Raises WeightsError, and ValueError for windows of more than C3D's 16 frames.
    """
    return {"c3d": _make_c3d, "resnext101_3d": _make_resnext, "ircsn152": _make_ir_csn}[name](options)


def _make_c3d(options: ExtractorOptions) -> NetworkExtractor:
    network, sha256 = load_pretrained("c3d", options.weights, c3d.from_checkpoint, lambda: randomize(C3D()))
    return NetworkExtractor(C3D_PLAN, C3DFromBytes(network), network.fc8.out_features, sha256, options)


def _make_resnext(options: ExtractorOptions) -> NetworkExtractor:
    layout = resnet3d.LAYOUTS["resnext101"]
    network, sha256 = load_pretrained(
        "resnext101_3d",
        options.weights,
        partial(resnet3d.from_checkpoint, "resnext101"),
        lambda: randomize(ResNet3D(layout), ".bn3"),
    )
    module = ClipsFromBytes(network, NormalizeStacks(resnet3d.MEAN_2018, (1.0, 1.0, 1.0), scale=1.0))
    return NetworkExtractor(RESNEXT_PLAN, module, network.fc.out_features, sha256, options)


def _make_ir_csn(options: ExtractorOptions) -> NetworkExtractor:
    network, sha256 = load_pretrained(
        "ircsn152", options.weights, csn.from_checkpoint, lambda: randomize(IrCsn(), ".conv3.1")
    )
    module = ClipsFromBytes(network, NormalizeStacks(csn.MEAN, csn.DEVIATION))
    return NetworkExtractor(IR_CSN_PLAN, module, network.fc.out_features, sha256, options)
