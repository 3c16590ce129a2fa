"""Computes features of pictures by networks trained on ImageNet: ResNet and ResNeXt, Inception-V4.

ResNet is He et al., CVPR 2016 (arXiv:1512.03385), with the stride in the 3×3 convolution ("ResNet v1.5");
ResNeXt is Xie et al., CVPR 2017 (arXiv:1611.05431). Input: float (N, 3, H, W), RGB / 255, less MEAN, by
DEVIATION. Inception-V4 is Szegedy et al., AAAI 2017 (arXiv:1602.07261). Input: (RGB / 255 − 0.5) / 0.5.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn
from torchvision.models import resnet as library

from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, unwrap

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CHANNELS, INCEPTION_CHANNELS = 2048, 1536


@dataclass(frozen=True, eq=False)
class PictureFeatures:
    """Holds a network's outputs.

    C is 2048, or 1536 of Inception-V4; a cell of a ResNet's map is 32 pixels wide, the last one may be cut.
    """

    grid: Tensor  #: (N, C, rows, columns), the last map
    pooled: Tensor  #: (N, C), its mean
    logits: Tensor  #: (N, classes)


@dataclass(frozen=True)
class ResNetLayout:
    """Describes a variant."""

    depths: tuple[int, int, int, int]  #: blocks of the four stages
    groups: int = 1  #: of the 3×3 convolutions, with their width (ResNeXt's 32×8d)
    group_width: int = 64


LAYOUTS: Mapping[str, ResNetLayout] = {
    "resnet50": ResNetLayout((3, 4, 6, 3)),
    "resnet101": ResNetLayout((3, 4, 23, 3)),
    "resnet152": ResNetLayout((3, 8, 36, 3)),
    "resnext50_32x4d": ResNetLayout((3, 4, 6, 3), 32, 4),
    "resnext101_32x8d": ResNetLayout((3, 4, 23, 3), 32, 8),
    "resnext101_64x4d": ResNetLayout((3, 4, 23, 3), 64, 4),
}


class ResNet(library.ResNet):  # type: ignore[misc]  # torchvision has no types
    """torchvision's network of one of LAYOUTS, which also returns its last map and that map's mean."""

    def __init__(self, layout: ResNetLayout, classes: int = 1000) -> None:
        groups, width = layout.groups, layout.group_width
        super().__init__(library.Bottleneck, layout.depths, classes, groups=groups, width_per_group=width)

    def forward(self, pictures: Tensor) -> PictureFeatures:
        x = self.maxpool(self.relu(self.bn1(self.conv1(pictures))))
        grid = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        pooled = grid.mean((2, 3))
        return PictureFeatures(grid, pooled, self.fc(pooled))


class InceptionV4(nn.Module):
    """timm's network, which also returns its last map, 8×8 cells of 299×299 pixels, and that map's mean."""

    def __init__(self, classes: int = 1000) -> None:
        import timm  # takes two seconds, which no other network of this file needs

        super().__init__()
        self.network: Any = timm.create_model("inception_v4", num_classes=classes)

    def forward(self, pictures: Tensor) -> PictureFeatures:
        grid = self.network.features(pictures)
        pooled = grid.mean((2, 3))
        return PictureFeatures(grid, pooled, self.network.last_linear(pooled))


def load_resnet(name: str, checkpoint: Checkpoint) -> ResNet:
    """Loads the network of that name in LAYOUTS with torchvision's weights. Raises WrongCheckpoint."""
    parameters = unwrap(checkpoint)
    return load_strict(ResNet(LAYOUTS[name], count_classes(parameters, "fc.weight")), parameters)


def load_inception_v4(checkpoint: Checkpoint) -> InceptionV4:
    """Loads the network in eval mode.

    Its parameters have the same names in timm's file and in Cadene's.

    Raises WrongCheckpoint.
    """
    parameters = unwrap(checkpoint)
    model = InceptionV4(count_classes(parameters, "last_linear.weight"))
    load_strict(model.network, parameters)
    return model.eval()
