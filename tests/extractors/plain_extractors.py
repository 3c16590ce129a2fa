"""Extractors that compute something plain, for tests of what lies between a file and a network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from extractors.features import Audio, Stream, StreamSpec
from extractors.windowing.window_extractor import WindowExtractor
from extractors.windowing.window_rows import WindowRows
from extractors.windows import Windows
from tests.media import read_number


class Numbers(WindowExtractor):
    """Reads the number that tests.media.numbered drew, frame by frame: stream (T, stack_size), -1 for none.

    sizes: of the frames that came. batches: windows of every call. prepared: frames that were prepared.
    """

    def __init__(
        self,
        windows: Windows | None = None,
        *,
        name: str = "numbers",
        short_side: int | None = None,
        batch: int = 3,
    ) -> None:
        self.windows, self.name, self.short_side, self.batch = windows or Windows(), name, short_side, batch
        self.width = self.windows.stack_size
        self.device = torch.device("cpu")
        self.spec = StreamSpec(name, "none", "none")
        self.sizes: set[tuple[int, int]] = set()
        self.batches: list[int] = []
        self.prepared = 0

    def prepare(self, frames: Tensor) -> Tensor:
        self.sizes.add((frames.shape[1], frames.shape[2]))
        self.prepared += len(frames)
        return frames

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        self.batches.append(len(stacks))
        found = [[read_number(frame.numpy()) for frame in stack] for stack in stacks]
        numbers = [[-1 if number is None else number for number in row] for row in found]
        return {self.name: WindowRows(torch.tensor(numbers, dtype=torch.float32))}


class Means(Numbers):
    """The mean of each colour over a window: stream (T, 3)."""

    def extract_windows(self, stacks: Tensor) -> dict[str, WindowRows]:
        self.batches.append(len(stacks))
        return {self.name: WindowRows(stacks.float().mean((1, 2, 3)))}


class Loudness:
    """Root mean square of the sound, a row a second: stream ``loudness`` (T, 1); zeros, masked, of none."""

    name, width, rate = "loudness", 1, 8000
    needs: frozenset[str] = frozenset({"audio"})
    spec = StreamSpec("loudness", "none", "none")

    def extract(self, audio: Audio | None, duration: float) -> dict[str, Stream]:
        start = np.arange(max(1, round(duration)), dtype=np.float64)
        samples = np.zeros(0) if audio is None else audio.samples
        seconds = [samples[int(s * self.rate) : int((s + 1) * self.rate)] for s in start]
        rows = [[np.sqrt(np.mean(part**2)) if len(part) else 0.0] for part in seconds]
        values, mask = torch.tensor(rows, dtype=torch.float32), torch.full((len(rows),), audio is not None)
        end = np.append(start[1:], np.float64(duration))
        return {self.name: Stream(values, start, end, self.spec, mask=mask)}


class Sum:
    """The rows of other streams added up: one number."""

    needs: frozenset[str] = frozenset({"streams"})
    width = 1

    def __init__(self, name: str, *needs_streams: str) -> None:
        self.name, self.needs_streams = name, needs_streams
        self.spec = StreamSpec(name, "none", "none")

    def derive(self, streams: Mapping[str, Stream]) -> dict[str, Stream]:
        total = torch.stack([streams[name].values.sum() for name in self.needs_streams]).sum()
        first = streams[self.needs_streams[0]]
        return {self.name: Stream(total.view(1, 1), np.zeros(1), first.end[-1:], self.spec)}
