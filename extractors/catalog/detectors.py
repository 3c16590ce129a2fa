"""Extracts a fixed number of boxes of each frame, what is in them and what they are called.

``detectron2_c4`` and ``detectron2_fpn`` are Faster R-CNN with ResNet-101 on COCO
(extractors/detection/faster_rcnn.py), ``bottom_up`` is bottom-up attention on Visual Genome
(extractors/detection/bottom_up.py); torchvision's two are in extractors/catalog/torchvision_detectors.py. A
number after a colon says how many boxes: ``bottom_up:16``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from extractors.detection import bottom_up, faster_rcnn
from extractors.detection.detectron2 import Detectron2, is_installed
from extractors.detection.regions import Regions, pad_regions, parse_count
from extractors.detection.two_stage import Stage, StageRunners, TwoStage
from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.features import Resizing, StreamSpec
from extractors.networks.labels import COCO_80
from extractors.preprocessing.detection import to_bgr_planes
from extractors.pretrained.load import load_pretrained
from extractors.pretrained.parameters import Checkpoint
from extractors.windowing.window_extractor import WindowExtractor, describe_windows
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows


class DetectorInput(Protocol):
    """Prepares a detector's pictures: extractors/preprocessing/detection.py does, or a library."""

    @property
    def preprocessing(self) -> str: ...

    @property
    def resizing(self) -> Resizing | None:
        """The resizing of ``resize``, None where it changes nothing."""

    def resize(self, frames: Tensor) -> Tensor:
        """Resizes frames uint8 (T, H, W, 3) to (T, h, w, 3)."""


class Detector(Protocol):
    """Finds regions. engine, precision: for the name tag."""

    width: int  #: of a region's feature
    things: int  #: classes
    engine: str

    @property
    def input(self) -> DetectorInput: ...

    @property
    def precision(self) -> str: ...

    def detect(self, planes: Tensor) -> list[Regions]:
        """Finds the regions of pictures uint8 (N, 3, H, W), blue first: in their pixels, the best first."""


class TwoStageDetector:
    """Runs a detector of ours, its two networks by engines."""

    def __init__(self, network: TwoStage, key: str, options: ExtractorOptions) -> None:
        self.network = network.to(options.device)
        self.input, self.width, self.things = network.input, network.width, network.things
        trunk = choose_engine(
            Stage(network, "run_trunk"), torch.zeros(2, 3, 128, 160), f"{key} trunk", options, free=(0, 2, 3)
        )
        bins = torch.zeros(2, *network.bins)
        embed = choose_engine(Stage(network, "embed"), bins, f"{key} second stage", options)
        self.engine, self.precision = trunk.name, trunk.precision
        self._stages = StageRunners(trunk.outputs, embed)

    def detect(self, planes: Tensor) -> list[Regions]:
        return self.network.detect(planes, self._stages)


@dataclass(frozen=True)
class DetectorSettings:
    """Names and defaults of one detector, apart from its weights."""

    network: str  #: for the name tag
    count: int  #: boxes a frame where none is said
    windows: Windows  #: which frames, where none are said
    labels: tuple[str, ...] | None = None  #: of the classes, where known


class RegionsExtractor(WindowExtractor):
    """Streams ``<name>`` (T, count, width); ``<name>_scores`` (T, count, classes), a box's score in the
    column of its class; of bottom-up attention ``<name>_attributes`` (T, count, 400). float16, each with
    ``boxes`` in [0, 1] of the frame and a ``mask``, the best box first, zeros behind the last.
    """

    short_side = None

    def __init__(
        self,
        name: str,
        settings: DetectorSettings,
        detector: Detector,
        weights: str,
        options: ExtractorOptions,
    ) -> None:
        self.name, self.detector, self.width = name, detector, detector.width
        self.count = parse_count(name, settings.count)
        self.windows, self.device = options.windows_over(settings.windows), options.device
        self.batch = options.threads if self.device.type == "cpu" else 4
        self.classes = settings.labels
        self.spec = StreamSpec(
            settings.network,
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

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        pictures = stacks[:, -1]
        regions = self.detector.detect(to_bgr_planes(pictures))
        size = (pictures.shape[1], pictures.shape[2])
        rows = pad_regions(regions, size, self.count, self.detector.things)
        return {self.name + ending: row for ending, row in rows.items()}


@dataclass(frozen=True)
class DetectorFamily:
    """Builds one of our networks from a checkpoint, or untrained."""

    settings: DetectorSettings
    build: Callable[[Checkpoint], TwoStage]
    blank: Callable[[], TwoStage]


#: As the captioners of the papers are fed: every 32nd frame, ten boxes.
COCO = Windows(step_size=32)
FAMILIES: Mapping[str, DetectorFamily] = {
    "detectron2_c4": DetectorFamily(
        DetectorSettings("faster-rcnn-r101-c4-coco", 10, COCO, COCO_80),
        faster_rcnn.from_checkpoint,
        faster_rcnn.C4,
    ),
    "detectron2_fpn": DetectorFamily(
        DetectorSettings("faster-rcnn-r101-fpn-coco", 10, COCO, COCO_80),
        faster_rcnn.from_checkpoint,
        faster_rcnn.FPN,
    ),
    "bottom_up": DetectorFamily(
        DetectorSettings("bottom-up-attention-r101-vg", 36, Windows(step_size=15)),
        bottom_up.from_checkpoint,
        bottom_up.BottomUp,
    ),
}


def make(name: str, options: ExtractorOptions) -> RegionsExtractor:
    """Makes the extractor with its weights. Raises WeightsError, UnknownExtractor.

    Where detectron2 is installed, and no engine is asked for by name, that library runs its own networks.
    """
    base_name = name.partition(":")[0]
    family = FAMILIES[base_name]
    parse_count(name, family.settings.count)
    network, weights = load_pretrained(base_name, options.weights, family.build, family.blank)
    detector: Detector
    if isinstance(network, faster_rcnn.C4 | faster_rcnn.FPN) and options.engine == "auto" and is_installed():
        detector = Detectron2(network, options.device, options.precision)
    else:
        detector = TwoStageDetector(network, f"{family.settings.network} {weights}", options)
    return RegionsExtractor(name, family.settings, detector, weights, options)
