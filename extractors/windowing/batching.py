"""From frames that come one chunk after another to rows: windows, batches of windows, streams.

Stacker   cuts the windows of one video out of its frames and forgets each frame that none will need
Batcher   describes windows of all videos together, as many at a time as the extractor likes
Ticket    gathers what was said of one video's windows until its streams can be made
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.features import WHOLE, Stream, View
from extractors.windowing.rows import WindowRows, on_the_cpu, stream
from extractors.windows import TICK, Cut

if TYPE_CHECKING:
    from extractors.windowing.window_extractor import WindowExtractor

# Small frames are enlarged when they are prepared: a chunk of them at once would be a hundred times as large.
FRAMES_AT_ONCE = 32


class WindowCutter:
    """The windows of one video for one extractor. Holds prepared frames of one window's span, and a few."""

    def __init__(self, extractor: WindowExtractor, cut: Cut) -> None:
        self._extractor, self._cut = extractor, cut
        self._due = cut.instants + TICK
        self._held: dict[int, Tensor] = {}
        self._settled = self._given = self._forgotten = 0

    def push(self, frames: Tensor, pts: NDArray[np.float64], until: float) -> Iterator[Tensor]:
        """The windows uint8 (stack_size, h, w, 3) that have become whole, in their order.

        frames: uint8 (T, H, W, 3) on the extractor's device, all that were decoded since the last call; pts:
        seconds (T,); until: when the next frame is shown. Must be read to its end before the next call.
        """
        for begin in range(0, len(pts), FRAMES_AT_ONCE):
            end = begin + FRAMES_AT_ONCE
            self._hold(frames[begin:end], np.append(pts[begin:end], pts[end] if end < len(pts) else until))
            yield from self._whole()

    def _hold(self, frames: Tensor, edges: NDArray[np.float64]) -> None:
        """Prepare the frames that are on screen at any wanted instant, and keep them by those instants."""
        bounds = np.searchsorted(self._due, edges)
        used = np.flatnonzero(np.diff(bounds))
        if len(used):
            prepared = self._extractor.prepare(frames if len(used) == len(frames) else frames[used])
            for place, frame in zip(used, prepared, strict=True):
                self._held.update(dict.fromkeys(range(bounds[place], bounds[place + 1]), frame))
        self._settled = int(bounds[-1])

    def _whole(self) -> Iterator[Tensor]:
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
    """One video's rows from one extractor. view: the part of its frames that was looked at. error: why there
    will be no rows, or None. seconds: its share of the batches' time."""

    extractor: WindowExtractor
    cut: Cut
    view: View = WHOLE
    error: Exception | None = None
    seconds: float = 0.0
    _rows: dict[str, WindowRows] = field(default_factory=dict)
    _count: int = 0

    @property
    def complete(self) -> bool:
        return self.error is not None or self._count == len(self.cut)

    def take(self, said: Mapping[str, WindowRows], begin: int, count: int) -> None:
        """What was said of the next ``count`` windows: rows of a batch from ``begin`` on.

        They are copied to a place for all. Kept one by one, small blocks between the large ones of each batch
        would make the heap grow with the length of the film.
        """
        if not self._rows:
            self._rows = {name: _room(rows, len(self.cut)) for name, rows in said.items()}
        for name, rows in said.items():
            for ours, new in zip(_tensors(self._rows[name]), _tensors(rows), strict=True):
                ours[self._count : self._count + count] = new[begin : begin + count]
        self._count += count

    def streams(self) -> dict[str, Stream]:
        """Raises ``error`` where there is one; needs all rows."""
        if self.error is not None:
            raise self.error
        spec, view = self.extractor.spec, self.view
        return {name: stream(rows, self.cut, spec, view) for name, rows in self._rows.items()}


def _tensors(rows: WindowRows) -> list[Tensor]:
    return [tensor for tensor in (rows.values, rows.boxes, rows.mask) if tensor is not None]


def _room(like: WindowRows, count: int) -> WindowRows:
    """Uninitialised rows of as many windows, on the CPU."""
    values, boxes, mask = (
        None if tensor is None else torch.empty(count, *tensor.shape[1:], dtype=tensor.dtype)
        for tensor in (like.values, like.boxes, like.mask)
    )
    assert values is not None
    return WindowRows(values, boxes, mask)


class Batcher:
    """Windows of any number of videos, described by one extractor in batches of one shape.

    seconds: spent describing so far.
    """

    def __init__(self, extractor: WindowExtractor) -> None:
        self.extractor = extractor
        self.seconds = 0.0
        self._waiting: list[tuple[Tensor, PendingRows]] = []

    def add(self, stack: Tensor, ticket: PendingRows) -> None:
        """One window, prepared frames uint8 (stack_size, h, w, 3), of the video that holds the ticket."""
        if self._waiting and stack.shape != self._waiting[0][0].shape:
            self.flush()
        self._waiting.append((stack, ticket))
        if len(self._waiting) >= self.extractor.batch:
            self.flush()

    def forget(self, ticket: PendingRows) -> None:
        """Drop the windows that still wait for this ticket."""
        self._waiting = [pair for pair in self._waiting if pair[1] is not ticket]

    def flush(self) -> None:
        """Describe all that wait. Where a batch of several videos fails, each is tried by itself."""
        waiting, self._waiting = self._waiting, []
        of_each = [
            (ticket, [stack for stack, _ in pairs]) for ticket, pairs in groupby(waiting, _pending_rows)
        ]
        try:
            self._describe(of_each)
        except Exception as error:  # whatever a network may raise: it costs the video that it is about
            for ticket, stacks in of_each:
                if len(of_each) == 1:
                    ticket.error = error
                else:
                    self._alone(ticket, stacks)

    def _alone(self, ticket: PendingRows, stacks: list[Tensor]) -> None:
        try:
            self._describe([(ticket, stacks)])
        except Exception as error:
            ticket.error = error

    def _describe(self, of_each: list[tuple[PendingRows, list[Tensor]]]) -> None:
        stacks = [stack for _, stacks in of_each for stack in stacks]
        if not stacks:
            return
        began = time.perf_counter()
        said = on_the_cpu(self.extractor.describe(torch.stack(stacks)))
        spent = time.perf_counter() - began
        self.seconds += spent
        begin = 0
        for ticket, own in of_each:
            ticket.take(said, begin, len(own))
            ticket.seconds += spent * len(own) / len(stacks)
            begin += len(own)


def _pending_rows(pair: tuple[Tensor, PendingRows]) -> PendingRows:
    return pair[1]
