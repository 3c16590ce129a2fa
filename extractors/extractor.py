"""Defines the interface of extractors, and lists them by name (``MODULES``, ``FAMILIES``)."""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from extractors.engines.engine import EngineName, Precision
from extractors.errors import ReelwordError, name_missing_packages
from extractors.features import Audio, Frames, Stream, StreamSpec
from extractors.pretrained.load import WeightsChoice
from extractors.windows import WindowOptions, Windows


def default_cache() -> Path:
    """Returns the folder of converted networks: REELWORD_CACHE, or reelword in the user's cache folder."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "reelword"
    return Path(os.environ.get("REELWORD_CACHE") or users).expanduser()


@dataclass(frozen=True)
class ExtractorOptions:
    """Options of making any extractor; each field has a default that works anywhere."""

    #: Of the torch engine; "cpu" lets OpenVINO run where it is installed.
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    engine: EngineName = "auto"  #: "auto" takes what measured best for the kind of network
    precision: Precision | None = None  #: None takes what measured best for the kind of network
    threads: int = 1  #: of the engine, on a CPU
    cache: Path = field(default_factory=default_cache)  #: folder of converted models
    #: "seeded" fills the network from a fixed seed, for tests and benchmarks, and the name tag says so.
    weights: WeightsChoice = "published"
    #: None takes the network's own, WindowOptions changes some of its members.
    windows: Windows | WindowOptions | None = None

    def windows_over(self, own: Windows) -> Windows:
        """Chooses how videos are cut by an extractor whose own windows are these."""
        if isinstance(self.windows, WindowOptions):
            return self.windows.over(own)
        return self.windows or own


class Extractor(Protocol):
    """Turns the frames of videos into streams; extractors/windowing/window_extractor.py is what most are made
    of.
    """

    name: str  #: how it is asked for
    needs: frozenset[str]  #: what it must be given
    spec: StreamSpec  #: the name tag its streams carry
    width: int  #: channels of a row of its main stream

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Extracts each video's streams by name, on the CPU. Videos are batched together."""
        ...


class SoundExtractor(Protocol):
    """Turns the sound of one video into streams. needs is {"audio"}; rate: samples a second it wants."""

    name: str
    needs: frozenset[str]
    spec: StreamSpec
    width: int
    rate: int

    def extract(self, audio: Audio | None, duration: float) -> dict[str, Stream]:
        """Extracts the streams of a video of ``duration`` seconds; audio is None where it has none."""
        ...


class DerivedExtractor(Protocol):
    """Turns other extractors' streams of one video into streams of its own, after them.

    needs is {"streams"}; needs_streams: their names.
    """

    name: str
    needs: frozenset[str]
    needs_streams: tuple[str, ...]
    spec: StreamSpec
    width: int

    def derive(self, streams: Mapping[str, Stream]) -> dict[str, Stream]:
        """Makes its streams by name, from streams that include those it needs."""
        ...


AnyExtractor: TypeAlias = Extractor | SoundExtractor | DerivedExtractor


class UnknownExtractor(ReelwordError, ValueError):
    """Raised where no extractor has that name; the message lists those there are."""

    code = "unknown_extractor"
    hint = "Choose one of those that the message lists."


OLDEST = "efficientnet-lite2"  #: its streams are called ``frames`` and ``grid``, as captioners know them
#: By name the module that makes it, by its function ``make(name, options)``; imported when asked for.
MODULES: Mapping[str, str] = {
    OLDEST: "extractors.catalog.efficientnet_lite2",
    "efficientnet-lite2-stages": "extractors.catalog.efficientnet_lite2",
    "efficientnet-lite3": "extractors.catalog.efficientnet_lite3",
    "tuned_pair": "extractors.catalog.tuned_pair",
    "i3d_rgb": "extractors.catalog.i3d",
    "i3d_brief": "extractors.catalog.i3d",
    "i3d_flow": "extractors.catalog.i3d",
    "resnet50": "extractors.catalog.imagenet",
    "resnet101": "extractors.catalog.imagenet",
    "resnet152": "extractors.catalog.imagenet",
    "resnext101": "extractors.catalog.imagenet",
    "inception_v4": "extractors.catalog.imagenet",
    "c3d": "extractors.catalog.clip_networks",
    "resnext101_3d": "extractors.catalog.clip_networks",
    "ircsn152": "extractors.catalog.clip_networks",
    "slow_r50": "extractors.catalog.pytorchvideo",
    "i3d_r50": "extractors.catalog.pytorchvideo",
    "slowfast_r50": "extractors.catalog.pytorchvideo",
    "csn_r101": "extractors.catalog.pytorchvideo",
    "detectron2_c4": "extractors.catalog.detectors",
    "detectron2_fpn": "extractors.catalog.detectors",
    "bottom_up": "extractors.catalog.detectors",
    "faster_rcnn": "extractors.catalog.torchvision_detectors",
    "mask_rcnn": "extractors.catalog.torchvision_detectors",
    "coco_ssd": "extractors.catalog.coco_ssd",
    "vggish": "extractors.catalog.vggish",
}
#: The same of extractors whose names go on after a colon: "roi:<map>@<boxes>", "labels:<name>+<name>",
#: "bottom_up:16" for so many boxes, "vggish:no_relu+pca_rounded".
FAMILIES: Mapping[str, str] = {
    "roi": "extractors.catalog.roi_align",
    "labels": "extractors.catalog.labels",
    **{
        name: MODULES[name]
        for name in (
            *("detectron2_c4", "detectron2_fpn", "bottom_up", "faster_rcnn", "mask_rcnn"),
            *("coco_ssd", "vggish"),
        )
    },
}


#: Extractors of more than one file of weights, or of another one's.
SEVERAL_WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "efficientnet-lite2-stages": (OLDEST,),
    "tuned_pair": (OLDEST, "efficientnet-lite3", "tuned_pair"),
    "i3d_brief": ("i3d_rgb",),
    "i3d_flow": ("i3d_flow", "raft_large"),
}


def list_extractors() -> tuple[str, ...]:
    """Lists the extractors that there are, those of FAMILIES left out."""
    return tuple(sorted(MODULES))


def find_module(name: str) -> str:
    """Finds the module that makes an extractor. Raises UnknownExtractor."""
    module = MODULES.get(name) or FAMILIES.get(name.partition(":")[0])
    if module is None:
        raise UnknownExtractor(f"there is no extractor {name!r}; there are: {', '.join(list_extractors())}")
    return module


def list_inputs(name: str) -> tuple[str, ...]:
    """Lists the extractors whose streams one takes. Raises UnknownExtractor."""
    if not is_derived(name):
        return ()
    streams: tuple[str, ...] = getattr(create(name), "needs_streams", ())
    return tuple(find_maker(stream) for stream in streams)


def is_derived(name: str) -> bool:
    """Returns whether an extractor takes others' streams. Raises UnknownExtractor."""
    return find_module(name) in (FAMILIES["roi"], FAMILIES["labels"])


def list_weights(name: str) -> tuple[str, ...]:
    """Lists the names in weights/manifest.toml of an extractor's weights. Raises UnknownExtractor."""
    base_name = name.partition(":")[0]
    if is_derived(name):
        return ()
    return SEVERAL_WEIGHTS.get(base_name, (base_name,))


def find_maker(stream: str) -> str:
    """Finds the extractor that makes a vector, map, boxes or scores of that name. Raises UnknownExtractor."""
    name = OLDEST if stream in ("frames", "grid") else re.sub("_(grid|logits|scores)$", "", stream)
    find_module(name)
    return name


def create(
    name: str,
    device: torch.device | str = "cpu",
    *,
    engine: EngineName = "auto",
    precision: Precision | None = None,
    threads: int = 1,
    cache: Path | None = None,
    weights: WeightsChoice = "published",
    windows: Windows | WindowOptions | None = None,
) -> AnyExtractor:
    """Makes an extractor, with its weights loaded.

    Args:
        name: of MODULES, or of a family with what follows its colon.
        device: of the torch engine; "cpu" lets OpenVINO run where it is installed.
        engine: "auto" takes what measured best for the kind of network.
        precision: None takes what measured best.
        threads: of the engine, on a CPU.
        cache: folder of converted models, by default REELWORD_CACHE or the user's.
        weights: "seeded" fills the network from a fixed seed, for tests and benchmarks.
        windows: how videos are cut, or what of it differs from the extractor's own way.

    Returns:
        The extractor.

    Raises:
        UnknownExtractor: where there is none of that name.
        WeightsError: where the weights are missing or damaged.
        PackageMissing: where its group of packages is not installed.
        ImportError: where OpenVINO, or a library that is in no group, is not installed.
    """
    module = find_module(name)
    options = ExtractorOptions(
        torch.device(device), engine, precision, threads, cache or default_cache(), weights, windows
    )
    with name_missing_packages():
        built: AnyExtractor = importlib.import_module(module).make(name, options)
    return built
