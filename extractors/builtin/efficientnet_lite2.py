"""EfficientNet-Lite2 as an extractor: every frame as one vector and as a grid of 7 × 7 cells.

Both streams come out of one pass over whole frames squashed to squares, as the pictures that the demo
captioner was trained on are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.engines.base import EngineName, NetworkEngine, Precision
from extractors.engines.engine import choose_engine
from extractors.extractor import ExtractorOptions
from extractors.features import Frames, Stream, StreamSpec
from extractors.networks.efficientnet_lite import (
    CHANNELS,
    EfficientNetLite,
    fold_norms,
    from_checkpoint,
    scaled,
)
from extractors.preprocessing.images import squash, to_device
from extractors.pretrained.load import WeightsChoice, load_pretrained
from extractors.pretrained.parameters import random_weights
from extractors.windowing.batching import WindowRows
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windows import Windows

NETWORK = "efficientnet-lite2"
PREPROCESSING = "whole picture squashed to 224x224, antialiased bilinear, 8 bits; (x - 127) / 128"
SIDE, CELLS = 224, 7
#: As many frames as the demo captioner was trained on, each from the middle of an equal part of the time.
WINDOWS = Windows(extraction_total=8)


def pretrained() -> EfficientNetLite:
    """The network with the packaged weights, in eval mode. Raises WeightsError."""
    return load_pretrained(NETWORK, "published", from_checkpoint, EfficientNetLite)[0]


class Grid(nn.Module):
    """From squares of bytes (N, 224, 224, 3) to cells row by row (N, 49, 1280), batch norms folded away."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.network = network
        fold_norms(network)

    def forward(self, pixels: Tensor) -> Tensor:
        grid: Tensor = self.network(scaled(pixels))
        return grid.permute(0, 2, 3, 1).flatten(1, 2)


class EfficientNetLite2(WindowExtractor):
    """The extractor; a window is a frame. Streams ``frames`` (T, 1280) and ``grid`` (T, 49, 1280), float16.

    device: of the torch engine; "cpu" lets OpenVINO run where it is installed. engine, precision: "auto"
    takes the fastest there is (bf16 where the processor has it). threads: of the engine, on a CPU.
    batch: pictures a forward pass; small ones stay in a CPU's caches. cache: folder of converted models,
    by default below REELWORD_DATA. windows: which frames, where a file and not frames are given.
    weights: "seeded" needs no package. Raises WeightsError, and ValueError for windows of several frames.
    """

    name = "efficientnet-lite2"
    width = CHANNELS
    short_side = 256
    any_frames = True
    #: What ``maps`` makes of a square: stream → (cells, channels).
    shapes: Mapping[str, tuple[int, int]] = MappingProxyType({"grid": (CELLS * CELLS, CHANNELS)})
    maps: Callable[[Any], nn.Module] = Grid

    def __init__(
        self,
        device: str | torch.device = "cpu",
        engine: EngineName = "auto",
        precision: Precision | None = None,
        threads: int = 1,
        batch: int | None = None,
        cache: Path | None = None,
        windows: Windows = WINDOWS,
        weights: WeightsChoice = "published",
    ) -> None:
        if windows.stack_size != 1:
            raise ValueError(f"{NETWORK} looks at single frames: stack_size is 1, not {windows.stack_size}")
        self.windows = windows
        self.device = torch.device(device)
        network, tag = self.weighed(weights)
        self.engine: NetworkEngine = choose_engine(
            self.maps(network),
            torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8),
            key=f"{self.name} {tag.weights_sha256} {tag.preprocessing}",
            device=self.device,
            engine=engine,
            precision=precision,
            threads=threads,
            cache=cache or Path(os.environ.get("REELWORD_DATA", "data")) / "cache",
        )
        self.batch = batch or (4 if self.device.type == "cpu" else 64)
        self.spec = replace(tag, engine=self.engine.name, precision=self.engine.precision)

    @classmethod
    def of(cls, options: ExtractorOptions) -> Self:
        """As ``create`` is asked for it. Raises WeightsError."""
        return cls(
            options.device,
            options.engine,
            options.precision,
            options.threads,
            cache=options.cache,
            windows=options.windows_over(WINDOWS),
            weights=options.weights,
        )

    @staticmethod
    def weighed(choice: WeightsChoice) -> tuple[Any, StreamSpec]:
        """What ``maps`` takes, with its weights, and the name tag of what it makes. Raises WeightsError."""
        network, sha256 = load_pretrained(
            NETWORK, choice, from_checkpoint, lambda: random_weights(EfficientNetLite())
        )
        return network, StreamSpec(NETWORK, sha256, PREPROCESSING)

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        """Stream → (N, cells, channels) of pictures uint8 (N, H, W, 3) of any one size."""
        maps = self._maps(squash(to_device(pictures, self.device), SIDE))
        return {name: values.numpy() for name, values in maps.items()}

    def grid(self, pictures: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Cells (N, 7, 7, 1280) of pictures uint8 (N, H, W, 3) of any one size."""
        return self.of_pictures(pictures)["grid"].reshape(-1, CELLS, CELLS, CHANNELS)

    def prepare(self, frames: Tensor) -> Tensor:
        return squash(frames, SIDE)

    def describe(self, stacks: Tensor) -> dict[str, WindowRows]:
        maps = self._described(stacks[:, 0])
        return {name: WindowRows(values) for name, values in self._with_mean(maps).items()}

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video its streams, on the CPU, of every frame that is given, whatever the windows.

        A row lasts until the next one, or the video's end.
        """
        if not videos:
            return []
        squares = torch.cat([squash(to_device(video.pixels, self.device), SIDE) for video in videos])
        counts = [len(video) for video in videos]
        split = {name: torch.split(values, counts) for name, values in self._maps(squares).items()}
        return [
            self._streams(video, {name: parts[i] for name, parts in split.items()})
            for i, video in enumerate(videos)
        ]

    def _maps(self, squares: Tensor) -> dict[str, Tensor]:
        """``_described`` of any number of squares, in the engine's batches, on the CPU."""
        parts = [self._described(part) for part in torch.split(squares, self.batch)]
        return {name: torch.cat([part[name] for part in parts]).cpu() for name in parts[0]}

    def _described(self, squares: Tensor) -> dict[str, Tensor]:
        """Stream → float16 (N, cells, channels) of one batch."""
        outputs = self.engine.outputs(squares)
        return {name: values.half() for name, values in zip(self.shapes, outputs, strict=True)}

    def _streams(self, video: Frames, maps: dict[str, Tensor]) -> dict[str, Stream]:
        end = np.append(video.pts[1:], video.duration)
        streams = self._with_mean(maps)
        return {name: Stream(values, video.pts, end, self.spec) for name, values in streams.items()}

    def _with_mean(self, maps: dict[str, Tensor]) -> dict[str, Tensor]:
        """With the mean of the last map, the frame as one vector, before it."""
        return {"frames": maps["grid"].float().mean(1).half(), **maps}


def make(_: str, options: ExtractorOptions) -> EfficientNetLite2:
    """The extractor with its packaged weights. Raises WeightsError."""
    return EfficientNetLite2.of(options)
