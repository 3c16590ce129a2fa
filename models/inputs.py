"""Pads streams of several videos to batches: the inputs of captioners."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from extractors.features import Features, Stream, StreamSpec
from models.captioner import InputDescription, Memory

# Streams of several videos as one padded batch.


@dataclass(frozen=True, eq=False)
class Batch(Memory):
    """B videos of one stream. Padding is zero in ``values`` and False in both masks.

    values: float (B, T, N, C); a stream without regions has N = 1.
    frame_mask: (B, T); region_mask: (B, T, N). times: (B, T, 2) seconds.
    """

    values: Tensor
    frame_mask: Tensor
    region_mask: Tensor


def collate(streams: Sequence[Stream], device: torch.device) -> Batch:
    """Pad to the longest stream and the most regions. float16 values become float32."""
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
    """(T, N), or (T, 1) to be spread over the regions."""
    if stream.mask is None:
        return torch.ones(len(stream), regions, dtype=torch.bool)
    if stream.mask.ndim > 1 or stream.mask.any():
        return stream.mask.reshape(len(stream), -1)
    # a padded window may be all that is known of a short video; a row of zeros is no sound
    return stream.values.ne(0).flatten(1).any(1, keepdim=True)


ConfigT = TypeVar("ConfigT", bound=BaseModel)
ABSENT = StreamSpec("absent", "", "")


class InputStream(BaseModel):
    """One input and its width. The same name may serve two inputs, e.g. a grid and its mean."""

    model_config = ConfigDict(frozen=True)

    name: str
    width: int


def renamed(config: ConfigT, names: Mapping[str, str]) -> ConfigT:
    """The same config with other names of inputs; what ``names`` lacks keeps its own."""
    return config.model_copy(update={field: _renamed(value, names) for field, value in config})


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, tuple):
        return tuple(_renamed(each, names) for each in value)
    fields = dict(value) if isinstance(value, BaseModel) else {}
    if {"name", "width"} <= fields.keys():  # an input, of whichever captioner
        return value.model_copy(update={"name": names.get(fields["name"], fields["name"])})
    return value


def distinct(*streams: InputStream | None) -> tuple[InputStream, ...]:
    """Those that are given, each name once, in order."""
    return tuple({s.name: s for s in streams if s is not None}.values())


def collate_inputs(
    features: Sequence[Features],
    streams: Sequence[InputStream],
    device: torch.device,
    optional: Collection[str] = (),
) -> list[Batch]:
    """One batch a stream. Those in ``optional`` may be missing; such a video's rows are masked.

    Raises KeyError for any other that is missing.
    """

    def of(video: Features, stream: InputStream) -> Stream:
        if stream.name in optional and stream.name not in video:
            return absent(stream)
        return video[stream.name]

    return [collate([of(video, stream) for video in features], device) for stream in streams]


def absent(stream: InputStream) -> Stream:
    """One row that the mask hides."""
    start = np.zeros(1)
    return Stream(torch.zeros(1, stream.width), start, start, ABSENT, mask=torch.zeros(1, dtype=torch.bool))


class StreamReader(Protocol):
    """A captioner or an embedding."""

    @property
    def inputs(self) -> Sequence[InputDescription]: ...


def inputs_of(network: StreamReader, batches: Mapping[str, Batch]) -> list[Batch]:
    """What ``network.encode_batches`` takes: its streams in its order."""
    return [batches[stream.name] for stream in network.inputs]


def frame_means(batch: Batch) -> Tensor:
    """(B, T, C), each frame's mean over the regions it has; 0 where it has none."""
    return batch.values.sum(2) / batch.region_mask.sum(2, keepdim=True).clamp(min=1)


def video_means(batch: Batch) -> Tensor:
    """(B, C), the mean over frames of each frame's mean."""
    return frame_means(batch).sum(1) / batch.frame_mask.sum(1, keepdim=True).clamp(min=1)


def nearest_rows(times: Tensor, of: Tensor, mask: Tensor) -> Tensor:
    """times: (B, T, 2), of: (B, S, 2) seconds, mask: (B, S) → (B, T), the row of ``of`` nearest in time.

    Rows are compared by their middles; of two equally near the earlier is taken.
    """
    distance = (times.mean(2).unsqueeze(2) - of.mean(2).unsqueeze(1)).abs()
    return distance.masked_fill(~mask.unsqueeze(1), torch.inf).argmin(2)


def on_clock(values: Tensor, rows: Tensor) -> Tensor:
    """values: (B, S, C), rows: (B, T) from ``nearest_rows`` → (B, T, C)."""
    return values.gather(1, rows.unsqueeze(2).expand(-1, -1, values.shape[2]))
