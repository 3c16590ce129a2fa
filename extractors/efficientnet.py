"""EfficientNet-Lite2 as an extractor: every frame as one vector and as a grid of 7 × 7 cells.

Both streams come out of one pass over whole frames squashed to squares, as the pictures that the demo
captioner was trained on are.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.efficientnet_lite import CHANNELS, EfficientNetLite, fold_norms, from_checkpoint
from extractors.engines import Engine, EngineName, Precision, choose_engine
from extractors.features import Frames, Stream, StreamSpec
from extractors.initial import lively
from extractors.options import Choice, ExtractorOptions
from extractors.preprocess import squash, to_device
from extractors.rows import Rows
from extractors.stack_extractor import StackExtractor
from extractors.weights import obtain
from extractors.windows import Windows

NETWORK = "efficientnet-lite2"
PREPROCESSING = "whole picture squashed to 224x224, antialiased bilinear, 8 bits; (x - 127) / 128"
SIDE, CELLS = 224, 7
#: As many frames as the demo captioner was trained on, each from the middle of an equal part of the time.
WINDOWS = Windows(extraction_total=8)


def pretrained() -> EfficientNetLite:
    """The network with the packaged weights, in eval mode. Raises WeightsError."""
    return obtain(NETWORK, "published", from_checkpoint, EfficientNetLite)[0]


class Grid(nn.Module):
    """From squares of bytes (N, 224, 224, 3) to cells row by row (N, 49, 1280), batch norms folded away."""

    def __init__(self, network: EfficientNetLite) -> None:
        super().__init__()
        self.network = network
        fold_norms(network)

    def forward(self, pixels: Tensor) -> Tensor:
        x = (pixels.permute(0, 3, 1, 2).float() - 127) * (1 / 128)
        grid: Tensor = self.network(x)
        return grid.permute(0, 2, 3, 1).flatten(1, 2)


class EfficientNetLite2(StackExtractor):
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

    def __init__(
        self,
        device: str | torch.device = "cpu",
        engine: EngineName = "auto",
        precision: Precision | None = None,
        threads: int = 1,
        batch: int | None = None,
        cache: Path | None = None,
        windows: Windows = WINDOWS,
        weights: Choice = "published",
    ) -> None:
        if windows.stack_size != 1:
            raise ValueError(f"{NETWORK} looks at single frames: stack_size is 1, not {windows.stack_size}")
        self.windows = windows
        self.device = torch.device(device)
        network, sha256 = obtain(NETWORK, weights, from_checkpoint, lambda: lively(EfficientNetLite()))
        self.engine: Engine = choose_engine(
            Grid(network),
            torch.zeros(2, SIDE, SIDE, 3, dtype=torch.uint8),
            key=f"{NETWORK} {sha256} {PREPROCESSING}",
            device=self.device,
            engine=engine,
            precision=precision,
            threads=threads,
            cache=cache or Path(os.environ.get("REELWORD_DATA", "data")) / "cache",
        )
        self.batch = batch or (4 if self.device.type == "cpu" else 64)
        self.spec = StreamSpec(
            NETWORK, sha256, PREPROCESSING, engine=self.engine.name, precision=self.engine.precision
        )

    def grid(self, pictures: NDArray[np.uint8]) -> NDArray[np.float16]:
        """Cells (N, 7, 7, 1280) of pictures uint8 (N, H, W, 3) of any one size."""
        cells: NDArray[np.float16] = self._cells(squash(to_device(pictures, self.device), SIDE)).numpy()
        return cells.reshape(-1, CELLS, CELLS, CHANNELS)

    def prepare(self, frames: Tensor) -> Tensor:
        return squash(frames, SIDE)

    def describe(self, stacks: Tensor) -> dict[str, Rows]:
        grid = self.engine(stacks[:, 0]).half()
        return {"frames": Rows(grid.float().mean(1).half()), "grid": Rows(grid)}

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video its two streams, on the CPU, of every frame that is given, whatever the windows.

        A row lasts until the next one, or the video's end.
        """
        if not videos:
            return []
        squares = [squash(to_device(video.pixels, self.device), SIDE) for video in videos]
        cells = torch.split(self._cells(torch.cat(squares)), [len(video) for video in videos])
        return [self._streams(video, grid) for video, grid in zip(videos, cells, strict=True)]

    def _cells(self, squares: Tensor) -> Tensor:
        return torch.cat([self.engine(part).half() for part in torch.split(squares, self.batch)]).cpu()

    def _streams(self, video: Frames, grid: Tensor) -> dict[str, Stream]:
        end = np.append(video.pts[1:], video.duration)
        frames = grid.float().mean(1).half()
        return {
            "frames": Stream(frames, video.pts, end, self.spec),
            "grid": Stream(grid, video.pts, end, self.spec),
        }


def make(_: str, options: ExtractorOptions) -> EfficientNetLite2:
    """The extractor with its packaged weights. Raises WeightsError."""
    return EfficientNetLite2(
        options.device,
        options.engine,
        options.precision,
        options.threads,
        cache=options.cache,
        windows=options.windows_over(WINDOWS),
        weights=options.weights,
    )
