"""Extracts features of a video's windows by pytorchvideo's slow_r50, i3d_r50, slowfast_r50 and csn_r101.

The first two are networks of ours that read its checkpoints (extractors/networks/slow_resnet.py), so that
it need not be installed; the other two are built by the library: `pip install -c constraints.txt --group
pytorchvideo`. Streams: the pooled vector, the last map cell by cell (the mean over its steps of time),
Kinetics' logits.
"""

import warnings
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from extractors.catalog.clip_networks import ClipsFromBytes
from extractors.extractor import ExtractorOptions
from extractors.networks import slow_resnet
from extractors.networks.slow_resnet import DEVIATION, LAYOUTS, MEAN, SlowResNet
from extractors.preprocessing.images import ResizeAndCrop
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import Checkpoint, count_classes, load_strict, randomize, unwrap
from extractors.windowing.network_extractor import (
    NetworkExtractor,
    NetworkPlan,
    NormalizeStacks,
    flatten_cells,
)
from extractors.windows import Windows

#: Every so many frames of 30 a second, as its recipes sample: 8 of every eighth, 32 of every second.
EIGHTH = Windows(stack_size=8, step_size=8, extraction_fps=30 / 8)
SECOND = Windows(stack_size=32, step_size=32, extraction_fps=30 / 2)
#: Frames of the fast pathway for one of the slow one's.
ALPHA = 4
#: The norm of a block before it meets its shortcut.
LAST_NORM = ".branch2.norm_c"
#: The classifier of the networks that the library builds.
HEADS: Mapping[str, str] = {"slowfast_r50": "blocks.6.proj.weight", "csn_r101": "blocks.5.proj.weight"}


def _plan(name: str, windows: Windows, width: int) -> NetworkPlan:
    return NetworkPlan(
        name=name,
        network=f"pytorchvideo {name}",
        outputs=("", "_grid", "_logits"),
        width=width,
        framing=ResizeAndCrop(256, 256),
        values="RGB, (x / 255 - 0.45) / 0.225; map: mean over time",
        windows=windows,
        # the pool before the classifier is as long as this
        least=windows.stack_size,
    )


PLANS: Mapping[str, NetworkPlan] = {
    "slow_r50": _plan("slow_r50", EIGHTH, 2048),
    "i3d_r50": _plan("i3d_r50", EIGHTH, 2048),
    "slowfast_r50": _plan("slowfast_r50", SECOND, 2048 + 256),
    "csn_r101": _plan("csn_r101", SECOND, 2048),
}


class CsnFromBytes(nn.Module):
    """Runs the library's csn_r101, a stem, four stages and a head that pools and projects.

    Windows (N, S, h, w, 3) to the pooled vector, the map's cells and the logits.
    """

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.normalised = network, NormalizeStacks(MEAN, DEVIATION)

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *stages, head = self.network.blocks
        grid = self.normalised(stacks)
        for stage in stages:
            grid = stage(grid)
        return head.pool(grid).mean((2, 3, 4)), flatten_cells(grid), head(grid)


class SlowFastFromBytes(nn.Module):
    """Runs the library's slowfast_r50; channels of the slow pathway come before those of the fast one."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network, self.normalised = network, NormalizeStacks(MEAN, DEVIATION)

    def forward(self, stacks: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        *stages, pool, head = self.network.blocks
        fast = self.normalised(stacks)
        # frames one by one: a list as an index cannot be exported
        paths = [torch.stack([fast[:, :, t] for t in pick_slow_frames(fast.shape[2])], 2), fast]
        for stage in stages:
            paths = stage(paths)
        grid = torch.cat([flatten_cells(path) for path in paths], 2)
        pooled = pool(list(paths))  # it writes into the list that it is given
        return pooled.mean((2, 3, 4)), grid, head(pooled)


def pick_slow_frames(count: int) -> list[int]:
    """Picks the frames that the slow pathway sees, first to last, as its recipe packs them."""
    return [int(place) for place in np.linspace(0, count - 1, count // ALPHA)]


def build_library_network(name: str, count: int = 400) -> nn.Module:
    """Builds slowfast_r50 or csn_r101 of so many classes, with initial weights. Raises ImportError."""
    with warnings.catch_warnings():
        # a library of its own scripts a loss when imported, which torch deprecates
        warnings.simplefilter("ignore")
        try:
            from pytorchvideo.models.csn import create_csn
            from pytorchvideo.models.slowfast import create_slowfast
        except ImportError as error:
            raise ImportError(
                f"{name} is built by pytorchvideo, which is not installed: "
                "pip install -c constraints.txt --group pytorchvideo"
            ) from error
    network: nn.Module = (
        create_slowfast(model_num_class=count)
        if name == "slowfast_r50"
        else create_csn(
            model_depth=101, model_num_class=count, stem_pool=nn.MaxPool3d, head_pool_kernel_size=(4, 7, 7)
        )
    )
    return network


def from_checkpoint(name: str, checkpoint: Checkpoint) -> nn.Module:
    """Loads slowfast_r50 or csn_r101 with its published weights. Raises WrongCheckpoint, ImportError."""
    parameters = unwrap(checkpoint)
    return load_strict(build_library_network(name, count_classes(parameters, HEADS[name])), parameters)


def make(name: str, options: ExtractorOptions) -> NetworkExtractor:
    """Makes the extractor of that name. Raises WeightsError; ImportError without the library."""
    if name in LAYOUTS:
        ours, sha256 = load_pretrained(
            name,
            options.weights,
            partial(slow_resnet.from_checkpoint, name),
            lambda: randomize(SlowResNet(LAYOUTS[name]), LAST_NORM),
        )
        count = len(ours.get_parameter(f"blocks.{len(ours.blocks) - 1}.proj.weight"))
        module = ClipsFromBytes(ours, NormalizeStacks(MEAN, DEVIATION))
        return NetworkExtractor(PLANS[name], module, count, sha256, options)
    network, sha256 = load_pretrained(
        name,
        options.weights,
        partial(from_checkpoint, name),
        lambda: randomize(build_library_network(name), LAST_NORM),
    )
    count = len(network.get_parameter(HEADS[name]))
    described = SlowFastFromBytes(network) if name == "slowfast_r50" else CsnFromBytes(network)
    return NetworkExtractor(PLANS[name], described, count, sha256, options)
