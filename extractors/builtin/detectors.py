"""Detectors as extractors: of each frame a fixed number of boxes, what is in them and what they are called.

``detectron2_c4`` and ``detectron2_fpn`` are Faster R-CNN with ResNet-101 on COCO
(extractors/detection/faster_rcnn.py), ``bottom_up`` is bottom-up attention on Visual Genome
(extractors/detection/bottom_up.py); torchvision's two are in extractors/builtin/torchvision_detectors.py. A
number after a colon says how many boxes: ``bottom_up:16``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from extractors.detection import bottom_up, faster_rcnn
from extractors.detection.detectron2 import Detectron2, is_installed
from extractors.detection.regions import Regions, rows
from extractors.detection.two_stage import Embed, Stages, Trunk, TwoStage
from extractors.engines.base import NetworkEngine
from extractors.engines.engine import choose_engine
from extractors.extractor import ExtractorOptions, UnknownExtractor
from extractors.features import StreamSpec
from extractors.frame_size import Resizing
from extractors.networks.labels import COCO_80
from extractors.preprocessing.detection import blue_first
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import Checkpoint
from extractors.windowing.batching import WindowRows
from extractors.windowing.window_extractor import WindowExtractor, describe_windows
from extractors.windows import Windows


class PictureInput(Protocol):
    """How a detector's pictures are prepared: extractors/preprocessing/detection.py, or a library's own
    way."""

    @property
    def preprocessing(self) -> str: ...

    @property
    def resizing(self) -> Resizing | None:
        """What ``resize`` does, None where that is nothing."""
        ...

    def resize(self, frames: Tensor) -> Tensor:
        """Frames uint8 (T, H, W, 3) to (T, h, w, 3)."""
        ...


class Detector(Protocol):
    """width: of a region's feature. things: classes. engine, precision: what runs it, for the name tag."""

    @property
    def input(self) -> PictureInput: ...

    @property
    def width(self) -> int: ...

    @property
    def things(self) -> int: ...

    @property
    def engine(self) -> str: ...

    @property
    def precision(self) -> str: ...

    def regions(self, planes: Tensor) -> list[Regions]:
        """Of pictures uint8 (N, 3, H, W), blue first: what is found, in their pixels, the best first."""
        ...


class DetectorRun:
    """A detector of ours whose two networks are run by engines."""

    def __init__(self, network: TwoStage, key: str, options: ExtractorOptions) -> None:
        self.network = network.to(options.device)
        self.input, self.width, self.things = network.input, network.width, network.things
        trunk = engine_of(Trunk(network), torch.zeros(2, 3, 128, 160), f"{key} trunk", (0, 2, 3), options)
        bins = engine_of(Embed(network), torch.zeros(2, *network.bins), f"{key} second stage", (0,), options)
        self.engine, self.precision = trunk.name, trunk.precision
        self._stages = Stages(trunk.outputs, bins)

    def regions(self, planes: Tensor) -> list[Regions]:
        return self.network.regions(planes, self._stages)


def engine_of(
    module: nn.Module, example: Tensor, key: str, free: tuple[int, ...], options: ExtractorOptions
) -> NetworkEngine:
    return choose_engine(
        module,
        example,
        key,
        device=options.device,
        engine=options.engine,
        precision=options.precision,
        threads=options.threads,
        cache=options.cache,
        free=free,
    )


@dataclass(frozen=True)
class Kind:
    """One detector, apart from its weights. network: for the name tag. count: boxes a frame where none is
    said. windows: which frames, where none are said. labels: of the classes, where known."""

    network: str
    count: int
    windows: Windows
    labels: tuple[str, ...] | None = None


class RegionsExtractor(WindowExtractor):
    """Streams ``<name>`` (T, count, width); ``<name>_scores`` (T, count, classes), a box's score in the
    column of its class; of bottom-up attention ``<name>_attributes`` (T, count, 400). float16, each with
    ``boxes`` in [0, 1] of the frame and a ``mask``, the best box first, zeros behind the last.
    """

    short_side = None

    def __init__(
        self, name: str, kind: Kind, detector: Detector, weights: str, options: ExtractorOptions
    ) -> None:
        self.name, self.detector, self.width = name, detector, detector.width
        self.count = count_in(name, kind.count)
        self.windows, self.device = options.windows_over(kind.windows), options.device
        self.batch = 1 if self.device.type == "cpu" else 4
        self.classes = kind.labels
        self.spec = StreamSpec(
            kind.network,
            weights,
            detector.input.preprocessing,
            f"{self.count} boxes; {describe_windows(self.windows)}",
            detector.engine,
            detector.precision,
        )

    @property
    def resizing(self) -> Resizing | None:
        return self.detector.input.resizing

    def prepare(self, frames: Tensor) -> Tensor:
        return self.detector.input.resize(frames)

    def describe(self, stacks: Tensor) -> dict[str, WindowRows]:
        pictures = stacks[:, -1]
        found = self.detector.regions(blue_first(pictures))
        size = (pictures.shape[1], pictures.shape[2])
        said = rows(found, size, self.count, self.detector.things)
        return {self.name + ending: of_one for ending, of_one in said.items()}


def count_in(name: str, usual: int) -> int:
    """Boxes a frame, from a name such as ``bottom_up:16``. Raises UnknownExtractor."""
    _, colon, number = name.partition(":")
    if not colon:
        return usual
    if not number.isdecimal() or not 1 <= int(number) <= 100:
        raise UnknownExtractor(f"{name!r} should end in a number of boxes from 1 to 100")
    return int(number)


@dataclass(frozen=True)
class DetectorFamily:
    """How one of our networks is made of a checkpoint, or of nothing."""

    kind: Kind
    build: Callable[[Checkpoint], TwoStage]
    blank: Callable[[], TwoStage]


#: As the captioners of the papers are fed: every 32nd frame, ten boxes.
COCO = Windows(step_size=32)
FAMILIES: Mapping[str, DetectorFamily] = {
    "detectron2_c4": DetectorFamily(
        Kind("faster-rcnn-r101-c4-coco", 10, COCO, COCO_80), faster_rcnn.from_checkpoint, faster_rcnn.C4
    ),
    "detectron2_fpn": DetectorFamily(
        Kind("faster-rcnn-r101-fpn-coco", 10, COCO, COCO_80), faster_rcnn.from_checkpoint, faster_rcnn.FPN
    ),
    "bottom_up": DetectorFamily(
        Kind("bottom-up-attention-r101-vg", 36, Windows(step_size=15)),
        bottom_up.from_checkpoint,
        bottom_up.BottomUp,
    ),
}


def make(name: str, options: ExtractorOptions) -> RegionsExtractor:
    """The extractor with its weights. Where detectron2 is installed, and no engine is asked for by name, that
    library runs its own networks. Raises WeightsError, UnknownExtractor."""
    own = name.partition(":")[0]
    family = FAMILIES[own]
    count_in(name, family.kind.count)
    network, weights = load_pretrained(own, options.weights, family.build, family.blank)
    detector: Detector
    if isinstance(network, faster_rcnn.C4 | faster_rcnn.FPN) and options.engine == "auto" and is_installed():
        detector = Detectron2(network, options.device, options.precision)
    else:
        detector = DetectorRun(network, f"{family.kind.network} {weights}", options)
    return RegionsExtractor(name, family.kind, detector, weights, options)
