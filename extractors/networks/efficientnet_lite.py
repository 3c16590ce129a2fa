"""Computes features of pictures by EfficientNet-Lite2 and Lite3; Python packages contain their weights.

EfficientNet (Tan and Le, 2019, arXiv:1905.11946) with the changes of its Lite variants (TensorFlow's TPU
repository, models/official/efficientnet/lite, 2020): no squeeze-and-excitation, ReLU6 for swish, and a
stem, a head and first and last stages that do not grow with the model. Lite2 widens B0 by 1.1 and deepens it
by 1.2, Lite3 by 1.2 and 1.4. Padding is TensorFlow's SAME, so a stride of 2 pads more below and right than
above and left. timm computes the same numbers, but its import takes 2 s and 195 MB of each ``caption``, and
the SSD detector and the tuned pair are made of these blocks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from extractors.pretrained.parameters import Checkpoint, WrongCheckpoint, load_strict, unwrap


def compute_same_padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    """Computes TensorFlow's SAME padding of one axis, which depends on the axis's size.

    Args:
        size: of the axis.
        kernel: its length.
        stride: ceil(size / stride) outputs come out.

    Returns:
        Zeros before and after; the odd one is after.
    """
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


CHANNELS = 1280
CLASSES = 1000


@dataclass(frozen=True)
class BlockLayout:
    """Describes a row of the paper's table 1: equal blocks, the first of which may stride and widen."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    width: int


# B0's stages, widths × 1.1 rounded to eights, repeats × 1.2 rounded up but for the first and the last
LITE2 = (
    BlockLayout(1, 3, 1, 1, 16),
    BlockLayout(3, 3, 2, 6, 24),
    BlockLayout(3, 5, 2, 6, 48),
    BlockLayout(4, 3, 2, 6, 88),
    BlockLayout(4, 5, 1, 6, 120),
    BlockLayout(5, 5, 2, 6, 208),
    BlockLayout(1, 3, 1, 6, 352),
)
# the same × 1.2 and × 1.4
LITE3 = (
    BlockLayout(1, 3, 1, 1, 24),
    BlockLayout(3, 3, 2, 6, 32),
    BlockLayout(3, 5, 2, 6, 48),
    BlockLayout(5, 3, 2, 6, 96),
    BlockLayout(5, 5, 1, 6, 136),
    BlockLayout(6, 5, 2, 6, 232),
    BlockLayout(1, 3, 1, 6, 384),
)
STEM_WIDTH = 32


def scale_pixels(pixels: Tensor) -> Tensor:
    """Scales bytes (N, H, W, 3) to the networks' float (N, 3, H, W), (x − 127) / 128."""
    return (pixels.permute(0, 3, 1, 2).float() - 127) * (1 / 128)


class ConvNormAct(nn.Module):
    """A convolution padded as TensorFlow's SAME, its batch norm, and ReLU6 unless ``linear``."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int = 1,
        stride: int = 1,
        groups: int = 1,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.kernel, self.stride, self.linear = kernel, stride, linear
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        top, bottom = compute_same_padding(x.shape[2], self.kernel, self.stride)
        left, right = compute_same_padding(x.shape[3], self.kernel, self.stride)
        if top or bottom or left or right:
            x = F.pad(x, (left, right, top, bottom))
        x = self.norm(self.conv(x))
        return x if self.linear else F.relu6(x)


def fold_lite_norms(network: nn.Module) -> None:
    """Folds every batch norm into the convolution before it, in place: the same function in fewer steps."""
    for layer in network.modules():
        if isinstance(layer, ConvNormAct) and isinstance(layer.norm, nn.BatchNorm2d):
            layer.conv = fuse_conv_bn_eval(layer.conv, layer.norm)
            layer.norm = nn.Identity()


class InvertedResidual(nn.Module):
    """Mobile inverted bottleneck: widen 1×1, filter each channel alone, narrow 1×1 without a nonlinearity."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self.expand = ConvNormAct(inputs, wide) if expansion > 1 else nn.Identity()
        self.depthwise = ConvNormAct(wide, wide, kernel, stride, groups=wide)
        self.project = ConvNormAct(wide, outputs, linear=True)
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.project(self.depthwise(self.expand(x)))
        return x + y if self.residual else y


def build_blocks(stages: Sequence[BlockLayout]) -> Iterator[InvertedResidual]:
    """Builds the blocks of all stages after a stem of STEM_WIDTH channels."""
    width = STEM_WIDTH
    for stage in stages:
        for repeat in range(stage.repeats):
            stride = stage.stride if repeat == 0 else 1
            yield InvertedResidual(width, stage.width, stage.kernel, stride, stage.expansion)
            width = stage.width


class EfficientNetLite(nn.Module):
    """Computes the last map (N, 1280, H/32, W/32), after ReLU6, of float (N, 3, H, W), (x − 127) / 128.

    ``classify`` gives ImageNet's 1000 logits from that map.
    """

    def __init__(self, stages: tuple[BlockLayout, ...] = LITE2) -> None:
        super().__init__()
        self.stem = ConvNormAct(3, STEM_WIDTH, 3, 2)
        self.blocks = nn.Sequential(*build_blocks(stages))
        self.head = ConvNormAct(stages[-1].width, CHANNELS)
        self.classifier = nn.Linear(CHANNELS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.head(self.blocks(self.stem(x)))
        return y

    def classify(self, grid: Tensor) -> Tensor:
        """Computes logits (N, 1000) of maps (N, 1280, rows, columns)."""
        logits: Tensor = self.classifier(grid.mean((2, 3)))
        return logits


PARTS = {
    "_conv_stem": "stem.conv",
    "_bn0": "stem.norm",
    "_conv_head": "head.conv",
    "_bn1": "head.norm",
    "_fc": "classifier",
}
BLOCK_PARTS = {
    "_expand_conv": "expand.conv",
    "_bn0": "expand.norm",
    "_depthwise_conv": "depthwise.conv",
    "_bn1": "depthwise.norm",
    "_project_conv": "project.conv",
    "_bn2": "project.norm",
}


def from_checkpoint(checkpoint: Checkpoint) -> EfficientNetLite:
    """Loads Lite2 from the packaged checkpoint, in eval mode. Raises WrongCheckpoint."""
    return load_strict(EfficientNetLite(), rename_parameters(unwrap(checkpoint)))


def from_layers(layers: Checkpoint, stages: tuple[BlockLayout, ...] = LITE3) -> EfficientNetLite:
    """Loads the network from its layers in the order they run in, in eval mode. Raises WrongCheckpoint.

    Their batch norms are folded away already (extractors/pretrained/tensorflow.py).
    """
    network = EfficientNetLite(stages).eval()
    fold_lite_norms(network)
    inside = [name for name, module in network.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    names = {f"layers.{index}": name for index, name in enumerate(inside)}
    renamed = {}
    for name, value in layers.items():
        layer, _, kind = name.rpartition(".")
        if layer not in names:
            raise WrongCheckpoint(f"Not the layers of an EfficientNet-Lite: {name} is left over.")
        renamed[f"{names[layer]}.{kind}"] = value
    return load_strict(network, renamed)


def rename_parameters(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Renames the parameters of the packaged checkpoint (lukemelas' port) to this module's names."""
    renamed = {}
    for name, value in checkpoint.items():
        part, _, rest = name.partition(".")
        if part == "_blocks":
            index, part, rest = rest.split(".", 2)
            renamed[f"blocks.{index}.{BLOCK_PARTS[part]}.{rest}"] = value
        elif part in PARTS:
            renamed[f"{PARTS[part]}.{rest}"] = value
        else:
            raise WrongCheckpoint(f"Not a checkpoint of EfficientNet-Lite: it has {name}.")
    return renamed
