"""Streams of several videos as one padded batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from extractors.features import Stream
from models.captioner import Memory


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
