"""The loop that one would write first around a library's network: float32, eager, a few windows at a time.

``loops(name)`` gives it for networks that an installed library has: torchvision, timm, pytorchvideo. Weights
do not matter for speed and are the library's initial ones.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from extractors.preprocessing.images import squash

Loop = Callable[[Tensor], object]


@dataclass(frozen=True)
class Library:
    """module: to import; path: what makes the network; options: given to it; kind: of the loop around it."""

    module: str
    path: str
    kind: str
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        return self.module.partition(".")[0]


def _picture(path: str) -> Library:
    return Library("torchvision.models", path, "picture", {"weights": None})


def _detector(path: str) -> Library:
    return Library(
        "torchvision.models.detection", path, "detector", {"weights": None, "weights_backbone": None}
    )


def _hub(path: str, kind: str = "clip") -> Library:
    return Library("pytorchvideo.models.hub", path, kind, {"pretrained": False})


LIBRARIES: Mapping[str, Library] = {
    "resnet50": _picture("resnet50"),
    "resnet101": _picture("resnet101"),
    "resnet152": _picture("resnet152"),
    "resnext101": _picture("resnext101_32x8d"),
    "inception_v4": Library("timm", "create_model", "picture", {"model_name": "inception_v4"}),
    "efficientnet-lite2": Library("timm", "create_model", "square", {"model_name": "tf_efficientnet_lite2"}),
    "faster_rcnn": _detector("fasterrcnn_resnet50_fpn"),
    "mask_rcnn": _detector("maskrcnn_resnet50_fpn"),
    "slow_r50": _hub("slow_r50"),
    "i3d_r50": _hub("i3d_r50"),
    "csn_r101": _hub("csn_r101"),
    "slowfast_r50": _hub("slowfast_r50", "two paths"),
}


def loop(name: str, batch: int) -> tuple[str, Loop] | None:
    """(library, the loop over windows uint8 (N, S, h, w, 3)); None where no installed library has it."""
    library = LIBRARIES.get(name)
    if library is None:
        return None
    try:
        make = getattr(importlib.import_module(library.module), library.path)
    except ImportError:
        return None
    network = make(**library.options).eval()
    return library.name, partial(_run, KINDS[library.kind], network, batch)


@torch.inference_mode()
def _run(forward: Callable[[Any, Tensor], object], network: Any, batch: int, stacks: Tensor) -> list[object]:
    return [forward(network, part) for part in torch.split(stacks, batch)]


def _normalised(pixels: Tensor) -> Tensor:
    """The channels before all but the rows; one mean is as quick as another."""
    return (pixels.movedim(-1, 1).float() / 255 - 0.45) / 0.225


def _of_picture(network: Any, stacks: Tensor) -> object:
    return network(_normalised(stacks[:, 0]))


def _of_square(network: Any, stacks: Tensor) -> object:
    return network.forward_features(_normalised(squash(stacks[:, 0], 224)))


def _of_clip(network: Any, stacks: Tensor) -> object:
    return network(_normalised(stacks))


def _of_two_paths(network: Any, stacks: Tensor) -> object:
    fast = _normalised(stacks)
    slow = fast[:, :, torch.linspace(0, fast.shape[2] - 1, fast.shape[2] // 4).long()]
    return network([slow, fast])


def _of_detector(network: Any, stacks: Tensor) -> object:
    return network([picture.permute(2, 0, 1).float() / 255 for picture in stacks[:, -1]])


KINDS: Mapping[str, Callable[[Any, Tensor], object]] = {
    "picture": _of_picture,
    "square": _of_square,
    "clip": _of_clip,
    "two paths": _of_two_paths,
    "detector": _of_detector,
}
