"""Extracts features of frames by ImageNet's networks: ResNet-50/101/152, ResNeXt-101, Inception-V4.

A row is a frame. Streams: the pooled vector, the last map cell by cell, ImageNet's logits. What is done to
the pixels is what the published weights were evaluated with: torchvision's first ("V1"), and timm's.
"""

from collections.abc import Mapping
from functools import partial

from torch import Tensor, nn

from extractors.extractor import ExtractorOptions
from extractors.networks import imagenet
from extractors.networks.imagenet import InceptionV4, ResNet
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

#: Our names, and those of torchvision's networks.
RESNETS: Mapping[str, str] = {
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "resnext101": "resnext101_32x8d",
}
#: How pictures are cut, and what is done to their bytes.
RESNET_INPUT = ResizeAndCrop(256, 224, rounding="even"), "(x / 255 - mean) / deviation of ImageNet"
INCEPTION_INPUT = ResizeAndCrop(341, 299, "bicubic", "even"), "(x / 255 - 0.5) / 0.5"  # 341 is 299 / 0.875


def _plan(name: str, network: str, width: int, framing: ResizeAndCrop, values: str) -> NetworkPlan:
    return NetworkPlan(
        name=name,
        network=network,
        outputs=("", "_grid", "_logits"),
        width=width,
        framing=framing,
        values=f"RGB, {values}",
        windows=Windows(),
        most=1,
        batch=(4, 32),
    )


PLANS: Mapping[str, NetworkPlan] = {
    **{name: _plan(name, network, imagenet.CHANNELS, *RESNET_INPUT) for name, network in RESNETS.items()},
    "inception_v4": _plan("inception_v4", "inception-v4", imagenet.INCEPTION_CHANNELS, *INCEPTION_INPUT),
}


class ImagesFromBytes(nn.Module):
    """Runs a network on windows of one frame, bytes (N, 1, h, w, 3).

    Returns the pooled vector, the map's cells and the logits.
    """

    def __init__(self, network: ResNet | InceptionV4, normalised: NormalizeStacks) -> None:
        super().__init__()
        self.network, self.normalised = network, normalised

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        features = self.network(self.normalised(stacks).squeeze(2))
        return features.pooled, flatten_cells(features.grid), features.logits


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """Makes the extractor ``inception_v4`` or one of RESNETS. Raises WeightsError."""
    return _make_inception_v4(options) if name == "inception_v4" else _make_resnet(name, options)


def _make_resnet(name: str, options: ExtractorOptions) -> NetworkExtractor:
    layout = imagenet.LAYOUTS[RESNETS[name]]
    network, sha256 = load_pretrained(
        name,
        options.weights,
        partial(imagenet.load_resnet, RESNETS[name]),
        lambda: randomize(ResNet(layout), ".bn3"),
    )
    module = ImagesFromBytes(network, NormalizeStacks(imagenet.MEAN, imagenet.DEVIATION))
    return NetworkExtractor(PLANS[name], module, network.fc.out_features, sha256, options)


def _make_inception_v4(options: ExtractorOptions) -> NetworkExtractor:
    network, sha256 = load_pretrained(
        "inception_v4", options.weights, imagenet.load_inception_v4, lambda: randomize(InceptionV4())
    )
    module = ImagesFromBytes(network, NormalizeStacks((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)))
    classes = network.network.last_linear.out_features
    return NetworkExtractor(PLANS["inception_v4"], module, classes, sha256, options)
