"""The base of extractors that look at windows of frames, a single frame being a window of one.

A subclass says how frames are prepared, which is done once however many windows share a frame, and what it
says of a batch of windows. extractors/stacks.py cuts and batches them, in memory here or as a decoder hands
the frames over (extractors/describe.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from extractors.features import WHOLE, Frames, Stream, StreamSpec, View
from extractors.preprocess import to_device
from extractors.rows import Rows
from extractors.sampling import shown
from extractors.windows import Cut, Windows


class StackExtractor(ABC):
    """Frames in, streams out. Streams are called ``<name>`` (T, C), ``<name>_grid`` (T, cells, C), row by
    row, and ``<name>_logits`` (T, classes).

    spec: the name tag. width: channels of ``<name>``. windows: how a video is cut. short_side: pixels that
    the shorter edge of the frames must at least have, None for frames as stored. batch: windows a forward
    pass. classes: labels of the logits, where known.
    """

    name: str
    needs: frozenset[str] = frozenset({"frames"})
    spec: StreamSpec
    width: int
    windows: Windows
    short_side: int | None
    batch: int
    device: torch.device
    classes: tuple[str, ...] | None = None

    @abstractmethod
    def prepare(self, frames: Tensor) -> Tensor:
        """Frames uint8 (T, H, W, 3) on the device, resized or cut to uint8 (T, h, w, 3)."""

    def view(self, height: int, width: int) -> View:  # noqa: ARG002 - a subclass that cuts needs them
        """What part of frames of that size ``prepare`` keeps."""
        return WHOLE

    @abstractmethod
    def describe(self, stacks: Tensor) -> Mapping[str, Rows]:
        """Stream name → what is said of windows, prepared frames uint8 (N, stack_size, h, w, 3)."""

    def extract(self, videos: Sequence[Frames]) -> list[dict[str, Stream]]:
        """For each video its streams, on the CPU; windows of all videos are batched together."""
        cuts = [self.windows.cut(video.duration, video.rate) for video in videos]
        stacks = (
            stack for video, cut in zip(videos, cuts, strict=True) for stack in self._stacks(video, cut)
        )
        rows = [on_the_cpu(self.describe(batch)) for batch in batches(stacks, self.batch)]
        names = rows[0] if rows else ()
        streams: list[dict[str, Stream]] = [{} for _ in videos]
        for name in names:
            whole = joined([batch[name] for batch in rows])
            begin = 0
            for video, cut, known in zip(videos, cuts, streams, strict=True):
                view = self.view(*video.pixels.shape[1:3])
                known[name] = stream(part(whole, begin, begin + len(cut)), cut, self.spec, view)
                begin += len(cut)
        return streams

    def _stacks(self, video: Frames, cut: Cut) -> Iterator[Tensor]:
        """The windows of one video, uint8 (stack_size, h, w, 3)."""
        used, place = np.unique(shown(video.pts, cut.instants), return_inverse=True)
        frames = self.prepare(to_device(video.pixels[used], self.device))
        for window in torch.from_numpy(place[cut.index]).to(self.device):
            yield frames[window]


def sampling(windows: Windows) -> str:
    """How a video is cut, for the name tag."""
    clock = f"{windows.extraction_fps:g} fps" if windows.extraction_fps else "every frame"
    if windows.extraction_total is not None:
        clock = f"extraction_total {windows.extraction_total}"
    return f"stack_size {windows.stack_size}, step_size {windows.step_size}, {clock}"


def batches(stacks: Iterable[Tensor], most: int) -> Iterator[Tensor]:
    """Windows of one shape together, ``most`` at a time, in their order."""
    waiting: list[Tensor] = []
    for stack in stacks:
        if waiting and (len(waiting) == most or stack.shape != waiting[0].shape):
            yield torch.stack(waiting)
            waiting = []
        waiting.append(stack)
    if waiting:
        yield torch.stack(waiting)


def on_the_cpu(rows: Mapping[str, Rows]) -> dict[str, Rows]:
    return {
        name: Rows(
            row.values.cpu(),
            None if row.boxes is None else row.boxes.cpu(),
            None if row.mask is None else row.mask.cpu(),
        )
        for name, row in rows.items()
    }


def joined(rows: Sequence[Rows]) -> Rows:
    """Batches of one stream, one behind the other."""
    boxes = [row.boxes for row in rows if row.boxes is not None]
    masks = [row.mask for row in rows if row.mask is not None]
    values = torch.cat([row.values for row in rows])
    return Rows(values, torch.cat(boxes) if boxes else None, torch.cat(masks) if masks else None)


def part(rows: Rows, begin: int, end: int) -> Rows:
    """Some windows of many."""
    boxes = None if rows.boxes is None else rows.boxes[begin:end]
    return Rows(rows.values[begin:end], boxes, None if rows.mask is None else rows.mask[begin:end])


def stream(rows: Rows, cut: Cut, spec: StreamSpec, view: View = WHOLE) -> Stream:
    """Rows with the times of their windows; a padded window is masked."""
    real = torch.from_numpy(~cut.padded)
    mask = real if rows.mask is None else rows.mask & real[:, None]
    return Stream(rows.values, cut.start, cut.end, spec, boxes=rows.boxes, mask=mask, view=view)
