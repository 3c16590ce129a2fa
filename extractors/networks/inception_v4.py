"""Inception-V4 by timm: pictures of 299×299 to maps, features and ImageNet's classes.

Szegedy et al., AAAI 2017 (arXiv:1602.07261). timm's network and Cadene's have the same parameters under the
same names; both files are read. Input: float (N, 3, H, W), (RGB / 255 − 0.5) / 0.5.
"""

from __future__ import annotations

from typing import Any

import timm
from torch import Tensor, nn

from extractors.networks.resnet import PictureFeatures
from extractors.pretrained.parameters import Checkpoint, classes, load_strict, unwrap

MEAN, DEVIATION = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
CHANNELS = 1536


class InceptionV4(nn.Module):
    """The network: grid (N, 1536, 8, 8) of 299×299, pooled (N, 1536), logits (N, 1000)."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        self.network: Any = timm.create_model("inception_v4", num_classes=classes)

    def forward(self, pictures: Tensor) -> PictureFeatures:
        grid = self.network.features(pictures)
        pooled = grid.mean((2, 3))
        return PictureFeatures(grid, pooled, self.network.last_linear(pooled))


def from_checkpoint(checkpoint: Checkpoint) -> InceptionV4:
    """The network with timm's or Cadene's weights, in eval mode. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    model = InceptionV4(classes(parameters, "last_linear.weight"))
    load_strict(model.network, parameters)
    return model.eval()
