"""Computes features of clips by I3D, Inception-v1 inflated to three dimensions, of RGB or optical flow.

Carreira and Zisserman, "Quo Vadis, Action Recognition?", CVPR 2017 (arXiv:1705.07750), figure 3. Modules
are named after the end points of DeepMind's graph (kinetics-i3d). Input: (N, 3, T, H, W) in [-1, 1], or
(N, 2, T, H, W) of flow, its x first. Padding is TensorFlow's SAME everywhere, so it depends on the size of
each axis. Three ports of the published checkpoint are read by their own names.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors.networks.efficientnet_lite import compute_same_padding
from extractors.pretrained.parameters import Checkpoint, WrongCheckpoint, count_classes, load_strict, unwrap

CHANNELS, CLASSES = 1024, 400
Size: TypeAlias = tuple[int, int, int]


def _pad_same(x: Tensor, kernel: Size, stride: Size, *, repeat_frames: bool = False) -> Tensor:
    """Pads the last three axes with zeros, as TensorFlow's SAME does.

    Harmless before a max pool, whose inputs come from a ReLU.

    x: (N, C, T, H, W). repeat_frames: time is padded by its first and last step, not by zeros. Returns (N, C,
    T′, H′, W′).
    """
    sizes = zip(x.shape[2:], kernel, stride, strict=True)
    time, rows, columns = (compute_same_padding(*axis) for axis in sizes)
    if repeat_frames and any(time):
        x = torch.cat([x[:, :, :1]] * time[0] + [x] + [x[:, :, -1:]] * time[1], 2)
        time = (0, 0)
    return F.pad(x, (*columns, *rows, *time)) if any((*time, *rows, *columns)) else x


def scale_pixels(pixels: Tensor) -> Tensor:
    """Scales pixels of 0..255, of any shape, to [-1, 1]."""
    return 2 * pixels.float() / 255 - 1


class ConvNormReLU(nn.Module):
    """A convolution without bias, its batch norm, ReLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.kernel, self.stride, self.repeat_frames = (kernel,) * 3, (stride,) * 3, False
        self.conv = nn.Conv3d(inputs, outputs, kernel, stride, bias=False)
        self.norm: nn.Module = nn.BatchNorm3d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        padded = _pad_same(x, self.kernel, self.stride, repeat_frames=self.repeat_frames)
        return F.relu(self.norm(self.conv(padded)))


class MaxPoolSame(nn.Module):
    def __init__(self, kernel: Size, stride: Size) -> None:
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: Tensor) -> Tensor:
        return F.max_pool3d(_pad_same(x, self.kernel, self.stride), self.kernel, self.stride)


class InceptionBlock(nn.Module):
    """Four branches side by side: 1×1, 1×1 then 3×3 twice, and a max pool then 1×1."""

    def __init__(self, inputs: int, widths: tuple[int, int, int, int, int, int]) -> None:
        super().__init__()
        one, narrow1, wide1, narrow2, wide2, pooled = widths
        self.branch0 = nn.Sequential(ConvNormReLU(inputs, one))
        self.branch1 = nn.Sequential(ConvNormReLU(inputs, narrow1), ConvNormReLU(narrow1, wide1, 3))
        self.branch2 = nn.Sequential(ConvNormReLU(inputs, narrow2), ConvNormReLU(narrow2, wide2, 3))
        self.branch3 = nn.Sequential(MaxPoolSame((3, 3, 3), (1, 1, 1)), ConvNormReLU(inputs, pooled))
        self.width = one + wide1 + wide2 + pooled

    def forward(self, x: Tensor) -> Tensor:
        branches = (self.branch0, self.branch1, self.branch2, self.branch3)
        return torch.cat([branch(x) for branch in branches], 1)


@dataclass(frozen=True, eq=False)
class LogitsHead:
    """Holds the head's features and logits of a map of T′ steps."""

    pooled: Tensor  #: (N, 1024, T″, H″, W″), averages over 2×7×7 neighbours
    features: Tensor  #: (N, 1024), their mean
    logits_per_step: Tensor  #: (N, 400, T″) of Kinetics-400 (600 in some files)
    logits: Tensor  #: (N, 400), their mean


class I3D(nn.Module):
    """Computes a clip's ``Mixed_5c`` map (N, 1024, T/8, H/32, W/32), each size rounded up.

    channels: 3 for RGB, 2 for flow. ``run_head`` needs a map of 7×7 cells or more, which is 224×224 pixels.
    """

    def __init__(self, channels: int = 3, classes: int = CLASSES) -> None:
        super().__init__()
        self.Conv3d_1a_7x7 = ConvNormReLU(channels, 64, 7, 2)
        self.MaxPool3d_2a_3x3 = MaxPoolSame((1, 3, 3), (1, 2, 2))
        self.Conv3d_2b_1x1 = ConvNormReLU(64, 64)
        self.Conv3d_2c_3x3 = ConvNormReLU(64, 192, 3)
        self.MaxPool3d_3a_3x3 = MaxPoolSame((1, 3, 3), (1, 2, 2))
        self.Mixed_3b = InceptionBlock(192, (64, 96, 128, 16, 32, 32))
        self.Mixed_3c = InceptionBlock(256, (128, 128, 192, 32, 96, 64))
        self.MaxPool3d_4a_3x3 = MaxPoolSame((3, 3, 3), (2, 2, 2))
        self.Mixed_4b = InceptionBlock(480, (192, 96, 208, 16, 48, 64))
        self.Mixed_4c = InceptionBlock(512, (160, 112, 224, 24, 64, 64))
        self.Mixed_4d = InceptionBlock(512, (128, 128, 256, 24, 64, 64))
        self.Mixed_4e = InceptionBlock(512, (112, 144, 288, 32, 64, 64))
        self.Mixed_4f = InceptionBlock(528, (256, 160, 320, 32, 128, 128))
        self.MaxPool3d_5a_2x2 = MaxPoolSame((2, 2, 2), (2, 2, 2))
        self.Mixed_5b = InceptionBlock(832, (256, 160, 320, 32, 128, 128))
        self.Mixed_5c = InceptionBlock(832, (384, 192, 384, 48, 128, 128))
        self.logits = nn.Conv3d(CHANNELS, classes, 1)

    def forward(self, clip: Tensor) -> Tensor:
        for name, layer in self.named_children():
            if name != "logits":
                clip = layer(clip)
        return clip

    def repeat_frames(self) -> Self:
        """Pads time by a clip's first and last frame in place of zeros, as if these lasted; in place.

        Of sixteen frames much of what a kernel sees in time would else be zeros, which the network, trained
        on 64, does not know. A still is then described alike however often it is repeated. Pools need no
        change: the maximum over a frame and its repetition is that over the frame and zero.
        """
        for layer in self.modules():
            if isinstance(layer, ConvNormReLU):
                layer.repeat_frames = True
        return self

    def run_head(self, grid: Tensor) -> LogitsHead:
        """Computes features and logits of a ``Mixed_5c`` map, of one step of time or more."""
        pooled = F.avg_pool3d(grid, (min(2, grid.shape[2]), 7, 7), 1)
        per_step = self.logits(pooled).mean((3, 4))
        return LogitsHead(pooled, pooled.mean((2, 3, 4)), per_step, per_step.mean(2))


#: piergiaj: Mixed_3b.b1a is the first unit of branch 1.
PIERGIAJ = {"b0": "0.0", "b1a": "1.0", "b1b": "1.1", "b2a": "2.0", "b2b": "2.1", "b3b": "3.1"}


def from_checkpoint(checkpoint: Checkpoint) -> I3D:
    """Loads the network that the checkpoint is of, RGB or flow, in eval mode. Raises WrongCheckpoint."""
    parameters = rename_parameters(unwrap(checkpoint))
    stem = parameters.get("Conv3d_1a_7x7.conv.weight")
    if stem is None:
        raise WrongCheckpoint("Not a checkpoint of I3D: it has no Conv3d_1a_7x7.")
    network = I3D(channels=stem.shape[1], classes=count_classes(parameters, "logits.weight"))
    return load_strict(network, parameters)


def rename_parameters(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Renames the parameters of piergiaj's, hassony2's or flax's checkpoint to this module's names.

    Names that are none of I3D's stay as they are.
    """
    if any("/" in name for name in checkpoint):
        return _rename_flax(checkpoint)
    rename = _rename_hassony2 if any(".batch3d." in name for name in checkpoint) else _rename_piergiaj
    return {rename(name): value for name, value in checkpoint.items()}


def _rename_piergiaj(name: str) -> str:
    """Renames ``Mixed_3b.b1a.conv3d.weight``, ``Mixed_3b.b1a.bn.bias``, ``logits.conv3d.weight``."""
    if name.startswith("logits.conv3d."):
        return name.replace("conv3d.", "")
    name = name.replace(".conv3d.", ".conv.").replace(".bn.", ".norm.")
    return re.sub(r"\.(b\d[ab]?)\.", lambda unit: f".branch{PIERGIAJ.get(unit[1], unit[1])}.", name)


def _rename_hassony2(name: str) -> str:
    """Renames ``mixed_3b.branch_1.0.conv3d.weight``, ``…branch_0.batch3d.bias``, ``conv3d_0c_1x1.…``."""
    if name.startswith("conv3d_0c_1x1.conv3d."):
        return name.replace("conv3d_0c_1x1.conv3d.", "logits.")
    name = name[:1].upper() + name[1:]
    name = name.replace(".conv3d.", ".conv.").replace(".batch3d.", ".norm.")
    return name.replace(".branch_0.", ".branch0.0.").replace(".branch_", ".branch")


def _rename_flax(checkpoint: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Renames ``params/Mixed_3b/Branch_1/Conv3d_0b_3x3/Conv_0/kernel``, ``batch_stats/…/BatchNorm_0/mean``.

    Kernels are (T, H, W, in, out). As in DeepMind's original the batch norms' scales, which are 1, are left
    out.
    """
    renamed = {}
    for name, value in checkpoint.items():
        kernel = name.endswith("/kernel")
        # running means keep the axes they were taken over, each of length 1
        renamed[_rename_flax_name(name)] = (
            value.permute(4, 3, 0, 1, 2).contiguous() if kernel else value.flatten()
        )
    for name in [name for name in renamed if name.endswith(".norm.bias")]:
        renamed.setdefault(name.replace(".bias", ".weight"), torch.ones_like(renamed[name]))
    return renamed


FLAX_LEAVES = {
    "Conv_0/kernel": "conv.weight",
    "BatchNorm_0/scale": "norm.weight",
    "BatchNorm_0/bias": "norm.bias",
    "BatchNorm_0/mean": "norm.running_mean",
    "BatchNorm_0/var": "norm.running_var",
}


def _rename_flax_name(name: str) -> str:
    path = name.split("/", 1)[1]  # after params or batch_stats
    if path.startswith("Logits/"):
        return "logits." + {"kernel": "weight", "bias": "bias"}[path.rsplit("/", 1)[1]]
    unit, leaf = "/".join(path.split("/")[:-2]), "/".join(path.split("/")[-2:])
    mixed = re.fullmatch(r"(Mixed_\w+)/Branch_(\d)/Conv3d_0[ab]_(\d)x\d", unit)
    if mixed is None:
        return f"{unit}.{FLAX_LEAVES[leaf]}"
    # by the kernel, for the letter is not to be trusted: Mixed_5b's branch 2 has 0a_1x1 and 0a_3x3
    second = mixed[3] == "3" or mixed[2] == "3"
    return f"{mixed[1]}.branch{mixed[2]}.{int(second)}.{FLAX_LEAVES[leaf]}"
