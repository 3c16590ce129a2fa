"""Extracts EfficientNet-Lite3's last map before its head of every frame, on the cells of Lite2's grid.

The second picture network that comes inside a package. It knows the same thousand classes and is wrong
elsewhere, so that both together say more of a picture than either (extractors/catalog/tuned_pair.py).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from extractors.catalog.efficientnet_lite2 import CELLS, EfficientNetLite2, flatten_cells
from extractors.extractor import ExtractorOptions
from extractors.features import StreamSpec
from extractors.networks.efficientnet_lite import (
    LITE3,
    EfficientNetLite,
    fold_lite_norms,
    from_layers,
    scale_pixels,
)
from extractors.pretrained.load import WeightsChoice, digest_weights, load_pretrained
from extractors.pretrained.parameters import randomize

NETWORK = "efficientnet-lite3"
#: The side of the pictures that it was trained on. Its own map has 9 x 9 cells then.
SIDE = 280
WIDTH = LITE3[-1].width
PREPROCESSING = (
    f"whole picture squashed to 224x224, antialiased bilinear, 8 bits; enlarged to {SIDE}x{SIDE}, bilinear; "
    "(x - 127) / 128; 9x9 cells averaged to 7x7"
)


class Lite3Maps(nn.Module):
    """Turns scaled squares (N, 3, 224, 224) into linear maps (N, 384, 7, 7), batch norms folded away."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        fold_lite_norms(network)
        self.stem, self.blocks = network.stem, network.blocks

    def forward(self, squares: Tensor) -> Tensor:
        squares = F.interpolate(squares, size=(SIDE, SIDE), mode="bilinear", align_corners=False)
        return F.adaptive_avg_pool2d(self.blocks(self.stem(squares)), CELLS)


class Lite3FromBytes(nn.Module):
    """Turns squares of bytes (N, 224, 224, 3) into cells row by row (N, 49, 384)."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.maps = Lite3Maps(network)

    def forward(self, pixels: Tensor) -> Tensor:
        return flatten_cells(self.maps(scale_pixels(pixels)))


class EfficientNetLite3(EfficientNetLite2):
    """Makes the stream ``lite3_grid`` (T, 49, 384), float16."""

    name = NETWORK
    classes = None
    width = WIDTH
    maps = Lite3FromBytes
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType({"lite3_grid": (CELLS * CELLS, WIDTH)})
    mean = None

    @staticmethod
    def name_weights(choice: WeightsChoice) -> StreamSpec:
        return StreamSpec(NETWORK, digest_weights(NETWORK, choice), PREPROCESSING)

    @staticmethod
    def load_network(choice: WeightsChoice) -> Any:
        return load_pretrained(NETWORK, choice, from_layers, lambda: randomize(EfficientNetLite(LITE3)))[0]


def make(_: str, options: ExtractorOptions) -> EfficientNetLite3:
    """Makes the extractor with its packaged weights. Raises WeightsError."""
    return EfficientNetLite3(options)
