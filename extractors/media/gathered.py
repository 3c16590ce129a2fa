"""A whole video's frames, gathered from a stream of them in the sizes that extractors ask for.

The frames as stored are never held together: of each chunk only the smaller ones are kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from extractors.features import Frames
from extractors.frame_size import FrameSize
from extractors.media import errors
from extractors.media.chunks import Begin, Chunk, End, StreamPart, StreamRequest
from extractors.media.decode import decode_here, stream_here
from extractors.media.request import Decoded, DecodeRequest, Limits


def gather_here(
    path: str | os.PathLike[str], request: DecodeRequest, limits: Limits | None = None
) -> Decoded:
    """Decode in this process, in one size or several; services use ``Decoder.decode``.

    Raises the leaves of ``MediaError`` but DecoderCrashed and DecoderKilled.
    """
    limits = limits or Limits()
    if not request.sizes:
        return decode_here(path, request, limits)
    return gather(stream_here(path, stream_request(request), limits), request, limits)


def stream_request(request: DecodeRequest) -> StreamRequest:
    """The same frames as a stream. Raises ValueError where they are asked for at a rate."""
    sides = (request.short_side, *(size.short_side for size in request.sizes))
    return StreamRequest(
        request.as_windows(), tuple(dict.fromkeys(sides)), request.audio_rate, part=request.part
    )


def gather(parts: Iterable[StreamPart], request: DecodeRequest, limits: Limits) -> Decoded:
    """All frames of a stream that ``stream_request`` asked for.

    Raises what the stream raises, and DecodeMemory where the frames would take more than the limit.
    """
    gathered = _Gathered(request, limits)
    for part in parts:
        if isinstance(part, Begin):
            gathered.begin(part)
        elif isinstance(part, Chunk):
            gathered.add(part)
        else:
            return gathered.decoded(part)
    raise AssertionError("a stream ends in an End or an error")


class _Gathered:
    """The frames so far, for each size the arrays of its chunks; a second ``Begin`` voids them."""

    def __init__(self, request: DecodeRequest, limits: Limits) -> None:
        self._sides = stream_request(request).short_sides
        self._sizes = (FrameSize(request.short_side), *request.sizes)
        self._limits = limits

    def begin(self, begin: Begin) -> None:
        self._begin, self._bytes = begin, 0
        self._pts: list[NDArray[np.float64]] = []
        self._pixels: dict[FrameSize, list[NDArray[np.uint8]]] = {size: [] for size in self._sizes}

    def add(self, chunk: Chunk) -> None:
        self._pts.append(chunk.pts)
        given = dict(zip(self._sides, chunk.pixels, strict=True))
        for size, arrays in self._pixels.items():
            arrays.append(size.shrink(given[size.short_side]))
            self._bytes += arrays[-1].nbytes
        if self._bytes > self._limits.memory:
            raise errors.DecodeMemory("Decoding the video took more memory than the limit allows.")

    def decoded(self, end: End) -> Decoded:
        pixels, *others = [np.concatenate(self._pixels.pop(size)) for size in self._sizes]
        frames = Frames(pixels, np.concatenate(self._pts), self._begin.duration, self._begin.fps)
        return Decoded(end.video, frames, end.audio, dict(zip(self._sizes[1:], others, strict=True)))
