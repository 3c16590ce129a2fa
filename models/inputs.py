"""Pads streams of several videos to batches, and names, averages and aligns what captioners read of them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from extractors.features import Features, Stream, StreamSpec
from models.memory import Memory


class InputStream(BaseModel, frozen=True):
    """Names one input and says its width. The same name may serve two inputs, e.g. a grid and its mean."""

    name: str
    width: int  #: numbers a row or cell


@dataclass(frozen=True, eq=False)
class Batch(Memory):
    """Holds B videos of one stream. Padding is zero in ``values`` and False in both masks.

    Attributes:
        values: float (B, T, N, C); a stream without regions has N = 1. float16 until it is read.
        frame_mask: bool (B, T).
        region_mask: bool (B, T, N).
        times: (B, T, 2) seconds.
        overlaps: Whether a row covers moments of the row before; None where only the times say it.
    """

    values: Tensor
    frame_mask: Tensor
    region_mask: Tensor
    overlaps: bool | None = None


@dataclass(frozen=True)
class BatchLayout:
    """Says how streams lie in a batch."""

    #: whether values that are all float16 stay so, half the bytes to bring to a GPU, in memory that it reads
    keeps_half: bool = False
    frames: int = 0  #: T at least
    regions: int = 0  #: N at least


PLAIN_LAYOUT = BatchLayout()


def collate(streams: Sequence[Stream], device: torch.device, layout: BatchLayout = PLAIN_LAYOUT) -> Batch:
    """Pads streams to the longest one and the most regions.

    Args:
        streams: One a video.
        device: Where the batch is to lie.
        layout: Whether float16 values stay so, or become float32, and how large the batch is at least.
    """
    frames = max(layout.frames, *(len(stream) for stream in streams))
    regions = max(layout.regions, *(count_regions(stream) for stream in streams))
    half = layout.keeps_half and all(stream.values.dtype == torch.float16 for stream in streams)
    # not zeros: nearly all of it is written below, and a pass over hundreds of megabytes is what takes time
    values = torch.empty(
        (len(streams), frames, regions, streams[0].values.shape[-1]),
        dtype=torch.float16 if half else torch.float32,
        device=device,
        pin_memory=layout.keeps_half and torch.cuda.is_available(),
    )
    mask = torch.zeros(len(streams), frames, regions, dtype=torch.bool, device=device)
    times = torch.zeros(len(streams), frames, 2, dtype=torch.float64)
    overlaps = False
    for i, stream in enumerate(streams):
        t, n = len(stream), count_regions(stream)
        there_is = _region_mask(stream, n)
        mask[i, :t, :n] = there_is.to(device)
        overlaps |= bool(np.any((stream.start[1:] < stream.end[:-1]) & there_is[1:].any(1).numpy()))
        times[i, :t, 0], times[i, :t, 1] = torch.from_numpy(stream.start), torch.from_numpy(stream.end)
        values[i, :t, :n] = stream.values.reshape(t, n, -1).to(device)
        values[i, t:], values[i, :t, n:] = 0, 0
        if stream.mask is not None:
            values[i, :t, :n] *= mask[i, :t, :n].unsqueeze(-1)
    return Batch(times.to(device), values, mask.any(2), mask, overlaps)


def count_regions(stream: Stream) -> int:
    """Counts the cells or boxes of a row, 1 for a vector."""
    return math.prod(stream.values.shape[1:-1])


def _region_mask(stream: Stream, regions: int) -> Tensor:
    """bool (T, N), or (T, 1) to be spread over the regions."""
    if stream.mask is None:
        return torch.ones(len(stream), regions, dtype=torch.bool)
    if stream.mask.ndim > 1 or stream.mask.any():
        return stream.mask.reshape(len(stream), -1)
    # a padded window may be all that is known of a short video; a row of zeros is no sound
    return stream.values.ne(0).flatten(1).any(1, keepdim=True)


ABSENT = StreamSpec("absent", "", "")


def deduplicate(*streams: InputStream | None) -> tuple[InputStream, ...]:
    """Keeps the streams that are given, each name once, in order."""
    return tuple({s.name: s for s in streams if s is not None}.values())


def collate_inputs(
    features: Sequence[Features],
    streams: Sequence[InputStream],
    device: torch.device,
    optional: Collection[str] = (),
    layout: BatchLayout = PLAIN_LAYOUT,
) -> list[Batch]:
    """Pads the streams of several videos, one batch a stream.

    Args:
        features: For each of B videos its streams by name.
        streams: Which of them, in the order of the answer.
        device: Where the batches are to lie.
        optional: Names of streams that a video may lack; its rows are masked then.
        layout: Of each batch.

    Raises:
        KeyError: A video lacks a stream that is not optional.
    """

    def of(video: Features, stream: InputStream) -> Stream:
        if stream.name in optional and stream.name not in video:
            return make_absent_stream(stream)
        return video[stream.name]

    return [collate([of(video, stream) for video in features], device, layout) for stream in streams]


def make_absent_stream(stream: InputStream) -> Stream:
    """Makes a stream of one row that the mask hides."""
    start = np.zeros(1)
    return Stream(torch.zeros(1, stream.width), start, start, ABSENT, mask=torch.zeros(1, dtype=torch.bool))


def order_inputs(streams: Sequence[InputStream], batches: Mapping[str, Batch]) -> list[Batch]:
    """Puts batches, in float32, into the order of a network's ``inputs``, for its ``encode_batches``."""
    return [_widen(batches[stream.name]) for stream in streams]


def _widen(batch: Batch) -> Batch:
    """Makes float32 of float16: sums over cells and frames would overflow in it."""
    return replace(batch, values=batch.values.float()) if batch.values.dtype == torch.float16 else batch


def average_regions(batch: Batch) -> Tensor:
    """Averages each frame over the regions it has: (B, T, C), 0 where it has none."""
    return batch.values.sum(2) / batch.region_mask.sum(2, keepdim=True).clamp(min=1)


def average_frames(batch: Batch) -> Tensor:
    """Averages each video over its frames' means: (B, C)."""
    return average_regions(batch).sum(1) / batch.frame_mask.sum(1, keepdim=True).clamp(min=1)


def find_nearest_rows(times: Tensor, of: Tensor, mask: Tensor) -> Tensor:
    """Finds for each row of one clock the nearest row of another.

    Rows are compared by their middles; of two equally near the earlier is taken.

    Args:
        times: (B, T, 2) seconds, the clock that is kept.
        of: (B, S, 2) seconds, the clock that is searched.
        mask: bool (B, S), the rows that there are.

    Returns:
        (B, T), rows of ``of``.
    """
    distance = (times.mean(2).unsqueeze(2) - of.mean(2).unsqueeze(1)).abs()
    return distance.masked_fill(~mask.unsqueeze(1), torch.inf).argmin(2)


def gather_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Puts values (B, S, C) on another clock: rows (B, T) of ``find_nearest_rows`` → (B, T, C)."""
    return values.gather(1, rows.unsqueeze(2).expand(-1, -1, values.shape[2]))
