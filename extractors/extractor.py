"""Defines the interface of extractors, and lists them by module (``CATALOG``, ``DERIVED``)."""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

import torch

from extractors.engines.engine import EngineName, EngineOptions, Precision, default_cache
from extractors.errors import ReelwordError, name_missing_packages
from extractors.features import Audio, Frames, Stream, StreamSpec
from extractors.pretrained.load import WeightsChoice
from extractors.pretrained.weights_folder import HUB
from extractors.windows import WindowOptions, Windows


@dataclass(frozen=True)
class ExtractorOptions(EngineOptions):
    """Options of making any extractor: those of its engine, and its own."""

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


class SoundExtractor(Protocol):
    """Turns the sound of one video into streams. needs is {"audio"}; rate: samples a second it wants."""

    name: str
    needs: frozenset[str]
    spec: StreamSpec
    width: int
    rate: int

    def extract(self, audio: Audio | None, duration: float) -> dict[str, Stream]:
        """Extracts the streams of a video of ``duration`` seconds; audio is None where it has none."""


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


AnyExtractor: TypeAlias = Extractor | SoundExtractor | DerivedExtractor


class UnknownExtractor(ReelwordError, ValueError, code="unknown_extractor"):
    """Raised where no extractor has that name; the message lists those there are."""

    hint = "Choose one of those that the message lists."


OLDEST = "efficientnet-lite2"  #: its streams are called ``frames`` and ``grid``, as captioners know them
#: By module of extractors/catalog the extractors that its function ``make(name, options)`` makes; it is
#: imported when one of them is asked for.
CATALOG: Mapping[str, tuple[str, ...]] = {
    "efficientnet_lite2": (OLDEST, "efficientnet-lite2-stages"),
    "efficientnet_lite3": ("efficientnet-lite3",),
    "tuned_pair": ("tuned_pair",),
    "i3d": ("i3d_rgb", "i3d_brief", "i3d_flow"),
    "imagenet": ("resnet50", "resnet101", "resnet152", "resnext101", "inception_v4"),
    "clip_networks": ("c3d", "resnext101_3d", "ircsn152"),
    "pytorchvideo": ("slow_r50", "i3d_r50", "slowfast_r50", "csn_r101"),
    "detectors": ("detectron2_c4", "detectron2_fpn", "bottom_up"),
    "torchvision_detectors": ("faster_rcnn", "mask_rcnn"),
    "coco_ssd": ("coco_ssd",),
    "vggish": ("vggish",),
}
#: The same of extractors that are made of others' streams: "roi:<map>@<boxes>", "labels:<name>+<name>".
DERIVED: Mapping[str, tuple[str, ...]] = {"roi_align": ("roi",), "labels": ("labels",)}
#: Modules whose names may continue after a colon: "bottom_up:16" for so many boxes, "vggish:pca_rounded".
WITH_SUFFIX = ("tuned_pair", "detectors", "torchvision_detectors", "coco_ssd", "vggish", *DERIVED)


#: Extractors of more than one file of weights, or of another one's.
SEVERAL_WEIGHTS: Mapping[str, tuple[str, ...]] = {
    "efficientnet-lite2-stages": (OLDEST,),
    "tuned_pair": (OLDEST, "efficientnet-lite3", "tuned_pair"),
    "i3d_brief": ("i3d_rgb",),
    "i3d_flow": ("i3d_flow", "raft_large"),
}


def list_extractors() -> tuple[str, ...]:
    """Lists the extractors that there are, those of DERIVED left out."""
    return tuple(sorted(name for names in CATALOG.values() for name in names))


def find_module(name: str) -> str:
    """Finds the module that makes an extractor. Raises UnknownExtractor."""
    if name.startswith(HUB):
        return "extractors.catalog.hub_encoders"
    base_name = name.partition(":")[0]
    for module, names in {**CATALOG, **DERIVED}.items():
        if name in names or (base_name in names and module in WITH_SUFFIX):
            return f"extractors.catalog.{module}"
    raise UnknownExtractor(
        f"there is no extractor {name!r}; there are: {', '.join(list_extractors())}, {HUB}NAME"
    )


def list_needed_streams(name: str) -> tuple[str, ...]:
    """Lists the streams of others that an extractor takes. Raises UnknownExtractor."""
    streams: tuple[str, ...] = getattr(create(name), "needs_streams", ()) if is_derived(name) else ()
    return streams


def list_inputs(name: str) -> tuple[str, ...]:
    """Lists the extractors whose streams one takes. Raises UnknownExtractor."""
    return tuple(find_maker(stream) for stream in list_needed_streams(name))


def is_derived(name: str) -> bool:
    """Returns whether an extractor takes others' streams. Raises UnknownExtractor."""
    return find_module(name).rpartition(".")[2] in DERIVED


def list_weights(name: str) -> tuple[str, ...]:
    """Lists the names in weights/manifest.toml of an extractor's weights. Raises UnknownExtractor."""
    base_name = name.partition(":")[0]
    if is_derived(name) or name.startswith(HUB):
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
        name: of CATALOG or DERIVED, with what follows its colon.
        device: of the torch engine; "cpu" lets OpenVINO run where it is installed.
        engine: "auto" takes what measured best for the kind of network.
        precision: None takes what measured best.
        threads: of the engine, on a CPU.
        cache: folder of converted models, by default REELWORD_CACHE or the user's.
        weights: "seeded" fills the network from a fixed seed, for tests and benchmarks.
        windows: how videos are cut, or what of it differs from the extractor's own way.

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
