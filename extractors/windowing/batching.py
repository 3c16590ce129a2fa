"""Turns frames that come one chunk after another into streams, by windows and batches of windows.

WindowCutter   cuts the windows of one video out of its frames and forgets each frame that none will need
Batcher        extracts windows of all videos together, as many at a time as the extractor likes
PendingRows    collects the rows of one video's windows until its streams can be made
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.features import WHOLE, Stream, StreamSpec, View
from extractors.windowing.memory_halving import extract_within_memory
from extractors.windowing.window_rows import WindowRows
from extractors.windows import TICK, Cut

# Small frames are enlarged when they are prepared: a chunk of them at once would be a hundred times as large.
FRAMES_AT_ONCE = 32


class BatchedExtractor(Protocol):
    """Declares what is asked of an extractor that looks at windows
    (extractors/windowing/window_extractor.py).
    """

    name: str
    spec: StreamSpec
    batch: int

    def prepare(self, frames: Tensor) -> Tensor:
        """Resizes or cuts frames."""

    def extract_windows(self, stacks: Tensor) -> Mapping[str, WindowRows]:
        """Turns windows into rows by stream name."""


class WindowCutter:
    """Cuts one video into windows for one extractor. Holds the prepared frames of one window, and a few."""

    def __init__(self, extractor: BatchedExtractor, cut: Cut) -> None:
        self._extractor, self._cut = extractor, cut
        self._due = cut.instants + TICK
        self._held: dict[int, Tensor] = {}
        self._settled = self._given = self._forgotten = 0

    def push(self, frames: Tensor, pts: NDArray[np.float64], until: float) -> Iterator[Tensor]:
        """Takes the next frames and cuts out the windows that have become whole.

        Must be read to its end before the next call.

        Args:
            frames: uint8 (T, H, W, 3) on the extractor's device, all that were decoded since the last call.
            pts: float64 (T,), seconds at which they are shown.
            until: seconds at which the next frame is shown.

        Returns:
            Windows uint8 (stack_size, h, w, 3) of prepared frames, in their order.
        """
        for begin in range(0, len(pts), FRAMES_AT_ONCE):
            end = begin + FRAMES_AT_ONCE
            self._hold(frames[begin:end], np.append(pts[begin:end], pts[end] if end < len(pts) else until))
            yield from self._pop_whole()

    def _hold(self, frames: Tensor, edges: NDArray[np.float64]) -> None:
        """Prepares the frames that are on screen at any wanted instant, and keeps them by those instants."""
        bounds = np.searchsorted(self._due, edges)
        bounds[0] = self._settled  # instants before the first frame show it, as find_shown_frames has it
        used = np.flatnonzero(np.diff(bounds))
        if len(used):
            prepared = self._extractor.prepare(frames if len(used) == len(frames) else frames[used])
            for place, frame in zip(used, prepared, strict=True):
                self._held.update(dict.fromkeys(range(bounds[place], bounds[place + 1]), frame))
        self._settled = int(bounds[-1])

    def _pop_whole(self) -> Iterator[Tensor]:
        index = self._cut.index
        while self._given < len(index) and index[self._given, -1] < self._settled:
            yield torch.stack([self._held[instant] for instant in index[self._given].tolist()])
            self._given += 1
            still = index[self._given, 0] if self._given < len(index) else len(self._due)
            for instant in range(self._forgotten, still):
                self._held.pop(instant, None)
            self._forgotten = int(still)


@dataclass(eq=False)
class PendingRows:
    """Collects one video's rows from one extractor."""

    extractor: BatchedExtractor
    cut: Cut
    view: View = WHOLE  #: the part of its frames that was looked at
    error: Exception | None = None  #: why there will be no rows, or None
    _rows: dict[str, WindowRows] = field(default_factory=dict)
    _count: int = 0

    @property
    def complete(self) -> bool:
        return self.error is not None or self._count == len(self.cut)

    def take(self, rows_of_batch: Mapping[str, WindowRows], begin: int, count: int) -> None:
        """Copies the rows of the next windows to a place for all.

        Kept one by one, small blocks between the large ones of each batch would make the heap grow with the
        length of the film.

        Args:
            rows_of_batch: stream name → rows of a whole batch.
            begin: the batch's first row that is this video's.
            count: how many are.
        """
        if not self._rows:
            self._rows = {name: _allocate(rows, len(self.cut)) for name, rows in rows_of_batch.items()}
        for name, rows in rows_of_batch.items():
            for ours, new in zip(_tensors(self._rows[name]), _tensors(rows), strict=True):
                ours[self._count : self._count + count] = new[begin : begin + count]
        self._count += count

    def streams(self) -> dict[str, Stream]:
        """Makes the streams once all rows are there. Raises ``error`` where there is one."""
        if self.error is not None:
            raise self.error
        return {name: self._make_stream(rows) for name, rows in self._rows.items()}

    def _make_stream(self, rows: WindowRows) -> Stream:
        """Makes a stream of the rows of all windows; padded ones are masked."""
        real = torch.from_numpy(~self.cut.padded)
        mask, cut = real if rows.mask is None else rows.mask & real[:, None], self.cut
        spec, view = self.extractor.spec, self.view
        return Stream(rows.values, cut.start, cut.end, spec, boxes=rows.boxes, mask=mask, view=view)


def _tensors(rows: WindowRows) -> list[Tensor]:
    return [tensor for tensor in (rows.values, rows.boxes, rows.mask) if tensor is not None]


def _allocate(like: WindowRows, count: int) -> WindowRows:
    """Allocates uninitialised rows of as many windows, on the CPU."""
    values, boxes, mask = (
        None if tensor is None else torch.empty(count, *tensor.shape[1:], dtype=tensor.dtype)
        for tensor in (like.values, like.boxes, like.mask)
    )
    assert values is not None
    return WindowRows(values, boxes, mask)


class Batcher:
    """Runs one extractor on the windows of any number of videos, in batches of one shape."""

    def __init__(self, extractor: BatchedExtractor) -> None:
        self.extractor = extractor
        self._most = extractor.batch
        self._waiting: list[tuple[Tensor, PendingRows]] = []

    def add(self, stack: Tensor, pending: PendingRows) -> None:
        """Adds one window of a video, prepared frames uint8 (stack_size, h, w, 3)."""
        if self._waiting and stack.shape != self._waiting[0][0].shape:
            self.flush()
        self._waiting.append((stack, pending))
        if len(self._waiting) >= self._most:
            self.flush()

    def forget(self, pending: PendingRows) -> None:
        """Drops the windows that still wait, of one video."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not pending]

    def flush(self) -> None:
        """Extracts all that wait. Where a batch of several videos fails, each is tried by itself."""
        waiting, self._waiting = self._waiting, []
        of_each = [
            (pending, [stack for stack, _ in pairs]) for pending, pairs in groupby(waiting, key=itemgetter(1))
        ]
        try:
            self._extract(of_each)
        except Exception as error:  # whatever a network may raise: it costs the video that it is about
            for pending, stacks in of_each:
                if len(of_each) == 1:
                    pending.error = error
                else:
                    self._extract_alone(pending, stacks)

    def _extract_alone(self, pending: PendingRows, stacks: list[Tensor]) -> None:
        try:
            self._extract([(pending, stacks)])
        except Exception as error:
            pending.error = error

    def _extract(self, of_each: list[tuple[PendingRows, list[Tensor]]]) -> None:
        stacks = [stack for _, stacks in of_each for stack in stacks]
        if not stacks:
            return
        rows_of_batch, fitting = extract_within_memory(self.extractor.extract_windows, stacks)
        if fitting < len(stacks):
            self._most = fitting
        begin = 0
        for pending, own_stacks in of_each:
            pending.take(rows_of_batch, begin, len(own_stacks))
            begin += len(own_stacks)
