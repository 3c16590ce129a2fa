"""C3D over windows of 16 frames: ``c3d_fc6``, ``c3d_fc7`` and the pooled maps ``c3d_pool2`` to ``c3d_pool5``.

A map keeps its steps of time: its cells go step by step, then row by row, 8·28·28 of pool2, 4·14·14 of pool3,
2·7·7 of pool4, 1·4·4 of pool5. Each window is looked at alone, with zeros beyond its ends, as the network was
trained.
"""

from __future__ import annotations

from torch import Tensor, nn

from extractors.extractor import ExtractorOptions
from extractors.networks import c3d
from extractors.networks.c3d import C3D, FRAMES, SIDE
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import random_weights
from extractors.windowing.network_extractor import NetworkExtractor, NetworkPlan
from extractors.windows import Windows

PLAN = NetworkPlan(
    name="c3d",
    network="c3d",
    outputs=("_fc7", "_fc6", "_pool2", "_pool3", "_pool4", "_pool5", "_logits"),
    width=4096,
    framing=ResizeAndCrop((128, 171), SIDE),
    values="RGB, 0..255 as it is; vectors after their ReLU",
    windows=Windows(stack_size=FRAMES, step_size=8),
    least=FRAMES,
    most=FRAMES,
)


class C3DFromBytes(nn.Module):
    """Windows of bytes (N, 16, 112, 112, 3) to what PLAN lists."""

    def __init__(self, network: C3D) -> None:
        super().__init__()
        self.network = network

    def forward(self, stacks: Tensor) -> tuple[Tensor, ...]:
        said = self.network(stacks.permute(0, 4, 1, 2, 3).float())
        maps = (said.pool2, said.pool3, said.pool4, said.pool5)
        return (said.fc7, said.fc6, *(grid.flatten(2).transpose(1, 2) for grid in maps), said.logits)


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """``c3d``. Raises WeightsError, and ValueError for windows of more than 16 frames."""
    network, sha256 = load_pretrained(
        name, options.weights, c3d.from_checkpoint, lambda: random_weights(C3D())
    )
    return NetworkExtractor(PLAN, C3DFromBytes(network), network.fc8.out_features, sha256, options)
