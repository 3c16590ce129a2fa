"""Pads streams of several videos to batches, and names, averages and aligns what captioners read of them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from pydantic import BaseModel
from torch import Tensor

from extractors.features import Features, Stream, StreamSpec
from models.memory import Memory


class InputDescription(Protocol):
    """Names an input and says its width (numbers a row or cell)."""

    @property
    def name(self) -> str: ...

    @property
    def width(self) -> int: ...


@dataclass(frozen=True, eq=False)
class Batch(Memory):
    """Holds B videos of one stream. Padding is zero in ``values`` and False in both masks.

    Attributes:
        values: float (B, T, N, C); a stream without regions has N = 1.
        frame_mask: bool (B, T).
        region_mask: bool (B, T, N).
        times: (B, T, 2) seconds.
    """

    values: Tensor
    frame_mask: Tensor
    region_mask: Tensor


def collate(streams: Sequence[Stream], device: torch.device) -> Batch:
    """Pads streams to the longest one and the most regions. float16 values become float32."""
    frames = max(len(stream) for stream in streams)
    regions = max(_region_count(stream) for stream in streams)
    width = streams[0].values.shape[-1]
    values = torch.zeros(len(streams), frames, regions, width, device=device)
    mask = torch.zeros(len(streams), frames, regions, dtype=torch.bool, device=device)
    times = torch.zeros(len(streams), frames, 2, dtype=torch.float64)
    for i, stream in enumerate(streams):
        t, n = len(stream), _region_count(stream)
        values[i, :t, :n] = stream.values.reshape(t, n, width).to(device, torch.float32)
        mask[i, :t, :n] = _region_mask(stream, n).to(device)
        times[i, :t, 0], times[i, :t, 1] = torch.from_numpy(stream.start), torch.from_numpy(stream.end)
    values.mul_(mask.unsqueeze(-1))
    return Batch(times=times.to(device), values=values, frame_mask=mask.any(2), region_mask=mask)


def _region_count(stream: Stream) -> int:
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


class InputStream(BaseModel, frozen=True):
    """Names one input and says its width. The same name may serve two inputs, e.g. a grid and its mean."""

    name: str
    width: int


def deduplicate(*streams: InputStream | None) -> tuple[InputStream, ...]:
    """Keeps the streams that are given, each name once, in order."""
    return tuple({s.name: s for s in streams if s is not None}.values())


def collate_inputs(
    features: Sequence[Features],
    streams: Sequence[InputDescription],
    device: torch.device,
    optional: Collection[str] = (),
) -> list[Batch]:
    """Pads the streams of several videos, one batch a stream.

    Args:
        features: For each of B videos its streams by name.
        streams: Which of them, in the order of the answer.
        device: Where the batches are to lie.
        optional: Names of streams that a video may lack; its rows are masked then.

    Raises:
        KeyError: A video lacks a stream that is not optional.
    """

    def of(video: Features, stream: InputDescription) -> Stream:
        if stream.name in optional and stream.name not in video:
            return make_absent_stream(stream)
        return video[stream.name]

    return [collate([of(video, stream) for video in features], device) for stream in streams]


def make_absent_stream(stream: InputDescription) -> Stream:
    """Makes a stream of one row that the mask hides."""
    start = np.zeros(1)
    return Stream(torch.zeros(1, stream.width), start, start, ABSENT, mask=torch.zeros(1, dtype=torch.bool))


class StreamReader(Protocol):
    """Reads streams: a captioner or an embedding."""

    @property
    def inputs(self) -> Sequence[InputDescription]: ...


def order_inputs(network: StreamReader, batches: Mapping[str, Batch]) -> list[Batch]:
    """Puts batches into the order of ``network.encode_batches``: one a stream of its ``inputs``."""
    return [batches[stream.name] for stream in network.inputs]


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
