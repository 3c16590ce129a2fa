"""Extracts of every frame, by EfficientNet-Lite2, one vector, a grid of 7 × 7 cells, and ImageNet's classes.

All streams come out of one pass over whole frames squashed to squares, as the pictures that the demo
captioner was trained on are.

Two earlier stages are an extractor of their own, for captioners that choose a level of abstraction (dualAFR):
the last map with a stride of 16 and the one before the head. What lies between that map and the grid can be
trained on with a captioner (extractors/catalog/tuned_pair.py).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.engines.engine import NetworkEngine, UnbuiltModule
from extractors.engines.engine_choice import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.features import Frames, Stream, StreamSpec
from extractors.networks.efficientnet_lite import (
    CHANNELS,
    CLASSES,
    LITE2,
    EfficientNetLite,
    fold_lite_norms,
    from_checkpoint,
    scale_pixels,
)
from extractors.networks.labels import IMAGENET
from extractors.preprocessing.images import squash, to_device
from extractors.pretrained.load import WeightsChoice, digest_weights, load_pretrained
from extractors.pretrained.parameters import randomize
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows

NETWORK = "efficientnet-lite2"
LOGITS = f"{NETWORK}_logits"
PREPROCESSING = "whole picture squashed to 224x224, antialiased bilinear, 8 bits; (x - 127) / 128"
SIDE, CELLS = 224, 7
#: As many frames as the demo captioner was trained on, each from the middle of an equal part of the time.
WINDOWS = Windows(extraction_total=8)


FINE = 2 * CELLS
#: Of LITE2's seven stages: the last with a stride of 16, and the last of all.
STAGE_14, STAGE_7 = 4, 6
#: Blocks before the first of LITE2's last two stages.
FIRST_BLOCKS = sum(stage.repeats for stage in LITE2[: STAGE_14 + 1])


def load_packaged() -> EfficientNetLite:
    """Loads the network with the packaged weights, in eval mode. Raises WeightsError."""
    return load_pretrained(NETWORK, "published", from_checkpoint, EfficientNetLite)[0]


def flatten_cells(maps: Tensor) -> Tensor:
    """Flattens maps (N, C, h, w) to cells row by row (N, h·w, C)."""
    return maps.permute(0, 2, 3, 1).flatten(1, 2)


class GridFromBytes(nn.Module):
    """Turns squares of bytes (N, 224, 224, 3) into cells row by row (N, 49, 1280) and logits (N, 1, 1000).

    Batch norms are folded away.
    """

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.network = network
        fold_lite_norms(network)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        grid = self.network(scale_pixels(pixels))
        return flatten_cells(grid), self.network.classify(grid)[:, None]


class StagesFromBytes(nn.Module):
    """Turns squares of bytes (N, 224, 224, 3) into cells row by row, (N, 196, 120) and (N, 49, 352)."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        fold_lite_norms(network)
        self.fine = nn.Sequential(network.stem, *network.blocks[:FIRST_BLOCKS])
        self.coarse = network.blocks[FIRST_BLOCKS:]

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        fine = self.fine(scale_pixels(pixels))
        return flatten_cells(fine), flatten_cells(self.coarse(fine))


class EfficientNetLite2(WindowExtractor):
    """Makes streams ``frames`` (T, 1280), ``grid`` (T, 49, 1280) and ``efficientnet-lite2_logits``
    (T, 1, 1000), float16; a window is a frame.

    Its windows say which frames, where a file and not frames are given. A forward pass takes few pictures on
    a CPU, so that they stay in its caches. Raises WeightsError, and ValueError for windows of several frames.
    """

    name = "efficientnet-lite2"
    width = CHANNELS
    short_side = 256
    any_frames = True
    classes: tuple[str, ...] | None = IMAGENET
    maps: Callable[[Any], nn.Module] = GridFromBytes
    #: What ``maps`` makes of a square: stream → (cells, channels).
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType(
        {"grid": (CELLS * CELLS, CHANNELS), LOGITS: (1, CLASSES)}
    )
    #: The stream of the mean of a map's cells, the frame as one vector, and the map's; None for no such one.
    mean: tuple[str, str] | None = ("frames", "grid")

    def __init__(self, options: ExtractorOptions | None = None) -> None:
        options = options or ExtractorOptions()
        self.windows, self.device = options.windows_over(WINDOWS), options.device
        if self.windows.stack_size != 1:
            stack_size = self.windows.stack_size
            raise ValueError(f"{NETWORK} looks at single frames: stack_size is 1, not {stack_size}")
        tag = self.name_weights(options.weights)
        self.engine: NetworkEngine = choose_engine(
            UnbuiltModule(lambda: self.maps(self.load_network(options.weights))),
            torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8),
            f"{self.name} {tag.weights_sha256} {tag.preprocessing}",
            options,
        )
        self.batch = 4 * options.threads if self.device.type == "cpu" else 64
        self.spec = replace(tag, engine=self.engine.name, precision=self.engine.precision)

    @staticmethod
    def name_weights(choice: WeightsChoice) -> StreamSpec:
        """Makes the name tag of the streams; the weights are found, not read. Raises WeightsError."""
        return StreamSpec(NETWORK, digest_weights(NETWORK, choice), PREPROCESSING)

    @staticmethod
    def load_network(choice: WeightsChoice) -> Any:
        """Loads the network for ``maps``. Raises WeightsError."""
        return load_pretrained(NETWORK, choice, from_checkpoint, lambda: randomize(EfficientNetLite()))[0]

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        """Extracts features of pictures uint8 (N, H, W, 3) of one size: stream → (N, cells, channels)."""
        maps = self._run_batches(squash(to_device(pictures, self.device), SIDE))
        return {name: values.numpy() for name, values in maps.items()}

    def grid(self, pictures: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Computes the cells (N, 7, 7, 1280) of pictures uint8 (N, H, W, 3) of any one size."""
        return self.of_pictures(pictures)["grid"].reshape(-1, CELLS, CELLS, CHANNELS)

    def prepare(self, frames: Tensor) -> Tensor:
        return squash(frames, SIDE)

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        maps = self._run(stacks[:, 0])
        return {name: WindowRows(values) for name, values in self._add_mean(maps).items()}

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """Extracts features of every frame of each video, whatever the windows; the streams lie on the CPU.

        A row lasts until the next one, or the video's end.
        """
        if not videos:
            return []
        squares = torch.cat([squash(to_device(video.pixels, self.device), SIDE) for video in videos])
        counts = [len(video) for video in videos]
        split = {name: torch.split(values, counts) for name, values in self._run_batches(squares).items()}
        return [
            self._make_streams(video, {name: parts[i] for name, parts in split.items()})
            for i, video in enumerate(videos)
        ]

    def _run_batches(self, squares: Tensor) -> dict[str, Tensor]:
        """Extracts features of any number of squares, in the engine's batches, on the CPU."""
        parts = [self._run(part) for part in torch.split(squares, self.batch)]
        return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}

    def _run(self, squares: Tensor) -> dict[str, Tensor]:
        """Extracts features of one batch: stream → float16 (N, cells, channels)."""
        outputs = self.engine.outputs(squares)
        return {name: values.half() for name, values in zip(self.shapes, outputs, strict=True)}

    def _make_streams(self, video: Frames, maps: dict[str, Tensor]) -> dict[str, Stream]:
        end = np.append(video.pts[1:], video.duration)
        streams = self._add_mean(maps)
        return {name: Stream(values, video.pts, end, self.spec) for name, values in streams.items()}

    def _add_mean(self, maps: dict[str, Tensor]) -> dict[str, Tensor]:
        if self.mean is None:
            return maps
        name, grid = self.mean
        return {name: maps[grid].float().mean(1).half(), **maps}


class EfficientNetStages(EfficientNetLite2):
    """Makes streams ``stage_14`` (T, 196, 120) and ``stage_7`` (T, 49, 352), float16."""

    name = "efficientnet-lite2-stages"
    classes = None
    width = LITE2[STAGE_7].width
    maps = StagesFromBytes
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType(
        {"stage_14": (FINE * FINE, LITE2[STAGE_14].width), "stage_7": (CELLS * CELLS, LITE2[STAGE_7].width)}
    )
    mean = None


def make(name: str, options: ExtractorOptions) -> EfficientNetLite2:
    """Makes the extractor of the frames, or of two stages. Raises WeightsError."""
    extractor = EfficientNetStages if name == EfficientNetStages.name else EfficientNetLite2
    return extractor(options)
