"""Picture networks over the frames of a video: ResNet-50/101/152, ResNeXt-101, Inception-V4.

A row is a frame. Streams: the pooled vector, the last map cell by cell, ImageNet's logits. What is done to
the pixels is what the published weights were evaluated with: torchvision's first ("V1"), and timm's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor, nn

from extractors.extractor import ExtractorOptions
from extractors.networks import inception_v4, resnet
from extractors.networks.inception_v4 import InceptionV4
from extractors.networks.resnet import LAYOUTS, ResNet
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import Checkpoint, random_weights
from extractors.windowing.network_extractor import (
    NetworkExtractor,
    NetworkPlan,
    NormalizeStacks,
    flatten_cells,
)
from extractors.windows import Windows

#: Our names, and those of torchvision's networks.
RESNETS: Mapping[str, str] = {
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "resnext101": "resnext101_32x8d",
}


def plan(name: str) -> NetworkPlan:
    """What is done to frames for the network of that name."""
    inception = name == "inception_v4"
    return NetworkPlan(
        name=name,
        network="inception-v4" if inception else RESNETS[name],
        outputs=("", "_grid", "_logits"),
        width=inception_v4.CHANNELS if inception else resnet.CHANNELS,
        # 341 is 299 / 0.875, as timm has it
        framing=ResizeAndCrop(341, 299, "bicubic", "even")
        if inception
        else ResizeAndCrop(256, 224, rounding="even"),
        values="RGB, (x / 255 - 0.5) / 0.5" if inception else "RGB, (x / 255 - mean) / deviation of ImageNet",
        windows=Windows(),
        most=1,
        batch=(4, 32),
    )


class ImagesFromBytes(nn.Module):
    """Windows of one frame, bytes (N, 1, h, w, 3), to the pooled vector, the map's cells and the logits."""

    def __init__(self, network: ResNet | InceptionV4, normalised: NormalizeStacks) -> None:
        super().__init__()
        self.network, self.normalised = network, normalised

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.network(self.normalised(stacks).squeeze(2))
        return features.pooled, flatten_cells(features.grid), features.logits


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """The extractor of that name. Raises WeightsError."""
    network: ResNet | InceptionV4
    if name == "inception_v4":
        network, sha256 = load_pretrained(
            name, options.weights, inception_v4.from_checkpoint, lambda: random_weights(InceptionV4())
        )
        normalised = NormalizeStacks(inception_v4.MEAN, inception_v4.DEVIATION)
        classifier = "network.last_linear.weight"
    else:
        build: Callable[[Checkpoint], ResNet] = partial(resnet.from_checkpoint, RESNETS[name])
        network, sha256 = load_pretrained(
            name, options.weights, build, lambda: random_weights(ResNet(LAYOUTS[RESNETS[name]]), ".bn3")
        )
        normalised = NormalizeStacks(resnet.MEAN, resnet.DEVIATION)
        classifier = "fc.weight"
    classes = len(network.get_parameter(classifier))
    return NetworkExtractor(plan(name), ImagesFromBytes(network, normalised), classes, sha256, options)
