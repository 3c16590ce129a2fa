"""Computes ResNet's maps as detectors use them: frozen norms, the stride in a block's first 1×1.

He et al., 2016 (arXiv:1512.03385), in the order of strides of their Caffe models. Modules carry detectron2's
names, so that its checkpoints fit as they are.
"""

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.ops.misc import FrozenBatchNorm2d

#: Blocks of ResNet-101's res2 to res5.
DEPTHS = (3, 4, 23, 3)


class NormedConvolution(nn.Conv2d):
    """A convolution without bias that holds its norm, eps 1e-5."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, dilation: int = 1) -> None:
        padding = dilation * (kernel // 2)
        super().__init__(inputs, outputs, kernel, stride, padding, dilation, bias=False)
        self.norm = FrozenBatchNorm2d(outputs, eps=1e-5)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm(super().forward(x))
        return y


class ResNetStem(nn.Module):
    """7×7 and a max pool. caffe: the pool is not padded, and its last window may hang over the edge."""

    def __init__(self, caffe: bool) -> None:
        super().__init__()
        self.caffe = caffe
        self.conv1 = NormedConvolution(3, 64, 7, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        return F.max_pool2d(x, 3, 2, padding=0 if self.caffe else 1, ceil_mode=self.caffe)


class CaffeBottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.shortcut = NormedConvolution(inputs, outputs, 1, stride) if inputs != outputs else None
        self.conv1 = NormedConvolution(inputs, width, 1, stride)
        self.conv2 = NormedConvolution(width, width, 3, 1, dilation)
        self.conv3 = NormedConvolution(width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv3(F.relu(self.conv2(F.relu(self.conv1(x)))))
        return F.relu(y + (x if self.shortcut is None else self.shortcut(x)))


def build_stage(number: int, blocks: int, stride: int, dilation: int = 1) -> nn.Sequential:
    """Builds one of the stages res2 to res5.

    Args:
        number: 2 to 5; channels double from one to the next.
        blocks: bottlenecks.
        stride: of the first of them.
        dilation: of every 3×3 in it.
    """
    inputs, width = (64 if number == 2 else 2 ** (number + 5)), 2 ** (number + 4)
    first = CaffeBottleneck(inputs, width, stride, dilation)
    return nn.Sequential(first, *(CaffeBottleneck(4 * width, width, 1, dilation) for _ in range(blocks - 1)))


class ResNetBackbone(nn.Module):
    """The stages from res2 to ``last``: pictures (N, 3, H, W) to the maps of each by name."""

    def __init__(self, last: int, caffe: bool = False) -> None:
        super().__init__()
        self.stem = ResNetStem(caffe)
        self.names = [f"res{number}" for number in range(2, last + 1)]
        for number, blocks in zip(range(2, last + 1), DEPTHS, strict=False):
            self.add_module(f"res{number}", build_stage(number, blocks, 1 if number == 2 else 2))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        x = self.stem(x)
        maps = {}
        for name in self.names:
            x = maps[name] = self.get_submodule(name)(x)
        return maps
