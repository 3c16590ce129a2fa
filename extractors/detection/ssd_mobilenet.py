"""Detects objects by SSD on MobileNet v2, from the frozen graph of TensorFlow's model zoo.

Liu et al., "SSD: Single Shot MultiBox Detector", ECCV 2016 (arXiv:1512.02325), on Sandler et al.,
"MobileNetV2", CVPR 2018 (arXiv:1801.04381), as in ssd_mobilenet_v2_coco_2018_03_29: the settings below were
read from that graph's constants. Its blocks are those of EfficientNet-Lite, which was made from them.
"""

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.detection.boxes import apply_deltas
from extractors.networks.efficientnet_lite import (
    STEM_WIDTH,
    BlockLayout,
    ConvNormAct,
    InvertedResidual,
    build_blocks,
)
from extractors.pretrained.parameters import load_strict

SIDE, CLASSES = 300, 90
STAGES = (
    BlockLayout(1, 3, 1, 1, 16),
    BlockLayout(2, 3, 2, 6, 24),
    BlockLayout(3, 3, 2, 6, 32),
    BlockLayout(4, 3, 2, 6, 64),
    BlockLayout(3, 3, 1, 6, 96),
    BlockLayout(3, 3, 2, 6, 160),
    BlockLayout(1, 3, 1, 6, 320),
)
#: The block whose widened map, before its stride, is the finest that is looked at: 19 × 19 cells.
FINEST = 13
#: Narrowed to, widened to, of the four coarser maps: 5 × 5, 3 × 3, 2 × 2 and 1 × 1 cells.
COARSER = ((256, 512), (128, 256), (128, 256), (64, 128))
#: Channels and cells along a side of the six maps.
WIDTHS, CELLS = (576, 1280, 512, 256, 256, 128), (19, 10, 5, 3, 2, 1)
#: Sizes of the anchors, of the picture's side, from map to map; the last only helps the one before it.
SIZES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0)
SMALLEST = 0.1
RATIOS = (1.0, 2.0, 0.5, 3.0, 0.3333)
#: Of dx, dy, dw, dh.
BOX_WEIGHTS = (10.0, 10.0, 5.0, 5.0)


class ExtraLayers(nn.Module):
    """Narrow 1×1, then every other cell 3×3 on each channel alone, then widen 1×1."""

    def __init__(self, inputs: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.narrow = ConvNormAct(inputs, narrow)
        self.depthwise = ConvNormAct(narrow, narrow, 3, 2, groups=narrow)
        self.widen = ConvNormAct(narrow, wide)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.widen(self.depthwise(self.narrow(x)))
        return y


class SsdPredictor(nn.Module):
    """Predicts for each anchor of a map how to move it, and logits of the background and the classes."""

    def __init__(self, inputs: int, per_cell: int) -> None:
        super().__init__()
        self.moves = nn.Conv2d(inputs, per_cell * 4, 3, padding=1)
        self.logits = nn.Conv2d(inputs, per_cell * (CLASSES + 1), 3, padding=1)

    def forward(self, grid: Tensor) -> tuple[Tensor, Tensor]:
        moves, logits = (head(grid).permute(0, 2, 3, 1) for head in (self.moves, self.logits))
        return moves.reshape(grid.shape[0], -1, 4), logits.reshape(grid.shape[0], -1, CLASSES + 1)


class SSD(nn.Module):
    """Predicts moves (N, 1917, 4) and logits (N, 1917, 91) from pictures (N, 3, 300, 300) in [-1, 1].

    Red is first. Moves are dy, dx, dh, dw of ``make_anchors()``; the background is the first class. Scores
    are sigmoids.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNormAct(3, STEM_WIDTH, 3, 2)
        self.blocks = nn.ModuleList(build_blocks(STAGES))
        self.head = ConvNormAct(STAGES[-1].width, WIDTHS[1])
        self.coarser = nn.ModuleList(
            ExtraLayers(inputs, *widths) for inputs, widths in zip(WIDTHS[1:5], COARSER, strict=True)
        )
        self.predictors = nn.ModuleList(
            SsdPredictor(inputs, 3 if number == 0 else 6) for number, inputs in enumerate(WIDTHS)
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        outputs = [
            predictor(grid) for predictor, grid in zip(self.predictors, self.compute_maps(x), strict=True)
        ]
        return torch.cat([moves for moves, _ in outputs], 1), torch.cat([logits for _, logits in outputs], 1)

    def compute_maps(self, x: Tensor) -> list[Tensor]:
        """Computes the six maps, the finest first."""
        x = self.stem(x)
        maps = []
        for number, block in enumerate(self.blocks):
            if number == FINEST:
                assert isinstance(block, InvertedResidual)
                maps.append(block.expand(x))
                x = block.project(block.depthwise(maps[0]))  # it strides, so nothing is added back
            else:
                x = block(x)
        maps.append(self.head(x))
        for coarser in self.coarser:
            maps.append(coarser(maps[-1]))
        return maps


def make_anchors() -> Tensor:
    """Makes (1917, 4) anchors, x0 y0 x1 y1 of the picture's sides, in the order map, row, column, anchor."""
    return torch.cat([_make_map_anchors(number, cells) for number, cells in enumerate(CELLS)])


def _make_map_anchors(number: int, cells: int) -> Tensor:
    if number == 0:
        sizes, ratios = torch.tensor([SMALLEST, SIZES[0], SIZES[0]]), torch.tensor(RATIOS[:3])
    else:
        between = (SIZES[number] * SIZES[number + 1]) ** 0.5
        sizes = torch.tensor([*[SIZES[number]] * len(RATIOS), between])
        ratios = torch.tensor([*RATIOS, 1.0])
    half = torch.stack([sizes * ratios.sqrt(), sizes / ratios.sqrt()], -1) / 2
    centre = (torch.arange(cells) + 0.5) / cells
    y, x = torch.meshgrid(centre, centre, indexing="ij")
    middle = torch.stack([x, y], -1)[:, :, None]
    return torch.cat([middle - half, middle + half], -1).reshape(-1, 4)


def decode_boxes(moves: Tensor) -> Tensor:
    """Decodes moves (N, 1917, 4) to boxes (N, 1917, 4) in [0, 1] of the picture."""
    placed = make_anchors().to(moves.device).repeat(len(moves), 1)
    x_before_y = moves.float().reshape(-1, 4)[:, [1, 0, 3, 2]]
    return apply_deltas(placed, x_before_y, BOX_WEIGHTS).clamp(0, 1).reshape(len(moves), -1, 4)


def from_graph(constants: Mapping[str, NDArray[np.float32]]) -> SSD:
    """Loads the network in eval mode from the arrays of the frozen graph. Raises WrongCheckpoint."""
    parameters: dict[str, Tensor] = {}
    for name, value in constants.items():
        parameter = _rename(name)
        if parameter is not None:
            parameters[parameter] = torch.from_numpy(_transpose(name, value))
    return load_strict(SSD(), parameters)


#: A layer's arrays, theirs on the left.
ARRAYS = {
    "weights": "conv.weight",
    "depthwise_weights": "conv.weight",
    "BatchNorm/gamma": "norm.weight",
    "BatchNorm/beta": "norm.bias",
    "BatchNorm/moving_mean": "norm.running_mean",
    "BatchNorm/moving_variance": "norm.running_var",
}
HEADS = {"BoxEncodingPredictor": "moves", "ClassPredictor": "logits"}


def _rename(name: str) -> str | None:
    """Returns our name; None for a constant that is no parameter: anchors, thresholds, axes."""
    scope, _, rest = name.partition("/")
    if scope.startswith("BoxPredictor_"):
        head, _, array = rest.partition("/")
        kind = {"weights": "weight", "biases": "bias"}.get(array)
        number = scope.removeprefix("BoxPredictor_")
        return f"predictors.{number}.{HEADS[head]}.{kind}" if head in HEADS and kind else None
    if not name.startswith("FeatureExtractor/MobilenetV2/"):
        return None
    layer = name.removeprefix("FeatureExtractor/MobilenetV2/")
    for theirs, ours in ARRAYS.items():
        if layer.endswith(f"/{theirs}"):
            return f"{_rename_layer(layer.removesuffix(f'/{theirs}'))}.{ours}"
    return None


def _rename_layer(layer: str) -> str:
    if layer in ("Conv", "Conv_1"):
        return "stem" if layer == "Conv" else "head"
    if layer.startswith("expanded_conv"):
        block, _, part = layer.partition("/")
        return f"blocks.{block.removeprefix('expanded_conv').removeprefix('_') or 0}.{part}"
    # such as layer_19_2_Conv2d_3_3x3_s2_256_depthwise
    step, number = layer.split("_")[2], int(layer.split("_")[4]) - 2
    part = "narrow" if step == "1" else "depthwise" if layer.endswith("_depthwise") else "widen"
    return f"coarser.{number}.{part}"


def _transpose(name: str, value: NDArray[np.float32]) -> NDArray[np.float32]:
    """Transposes (height, width, inputs, outputs); a depthwise convolution has inputs before 1."""
    if value.ndim != 4:
        return value
    axes = (2, 3, 0, 1) if name.endswith("depthwise_weights") else (3, 2, 0, 1)
    return np.ascontiguousarray(value.transpose(axes))
