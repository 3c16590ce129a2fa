"""Collects a stream of frames into one ``Decoded``: decoding at once is streaming and keeping all of it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from extractors.features import Frames
from extractors.media import errors
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamPart, StreamStart


def collect_stream(parts: Iterable[StreamPart], request: DecodeRequest, limits: Limits) -> Decoded:
    """Read a stream to its end and keep its frames.

    Args:
        parts: the stream that ``request`` asked for.
        request: names the sizes; its first is that of ``Decoded.frames``.
        limits: ``memory`` is the most that the frames may take.

    Returns:
        All frames in all sizes, the decode report and the sound.

    Raises:
        MediaError: what the stream raises, and DecodeMemory where the frames take more than the limit.
        ValueError: where the parts do not make a stream of that request.
    """
    collector = _Collector(request, limits)
    for part in parts:
        if isinstance(part, StreamStart):
            collector.start(part)
        elif isinstance(part, FrameChunk):
            collector.add(part)
        else:
            return collector.finish(part)
    raise ValueError("the stream has no end")


class _Collector:
    """Holds the frames so far, for each size one array that grows. ``StreamStart`` anew voids them."""

    def __init__(self, request: DecodeRequest, limits: Limits) -> None:
        self._sizes, self._shown, self._limits = request.frame_sizes, request.shown, limits
        self._start: StreamStart | None = None

    def start(self, start: StreamStart) -> None:
        self._start, self._bytes = start, 0
        self._pts: list[NDArray[np.float64]] = []
        self._pixels = {size: np.zeros((0, 0, 0, 3), np.uint8) for size in self._sizes}

    def add(self, chunk: FrameChunk) -> None:
        if self._start is None:
            raise ValueError("the stream does not begin with its clock")
        self._pts.append(chunk.pts)
        self._bytes += sum(pixels.nbytes for pixels in chunk.pixels)
        if self._bytes > self._limits.memory:
            raise errors.DecodeMemory("Decoding the video took more memory than the limit allows.")
        for size, pixels in zip(self._sizes, chunk.pixels, strict=True):
            self._pixels[size] = _append(self._pixels[size], pixels)

    def finish(self, end: StreamEnd) -> Decoded:
        if self._start is None:
            raise ValueError("the stream does not begin with its clock")
        pixels, *others = [self._pixels.pop(size) for size in self._sizes]
        pts = np.concatenate([np.zeros(0), *self._pts])
        frames = Frames(pixels, pts, self._start.duration, self._start.fps)
        sized = dict(zip(self._sizes[1:], others, strict=True))
        return Decoded(end.video, frames, end.audio, sized, self._shown)


def _append(frames: NDArray[np.uint8], chunk: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Append a chunk to the frames so far, where they lie: the system moves pages, and copies none."""
    if not len(frames):  # short clips: nothing is copied
        return chunk
    if not frames.flags.owndata:
        frames = frames.copy()
    begin = len(frames)
    frames.resize((begin + len(chunk), *frames.shape[1:]), refcheck=False)
    frames[begin:] = chunk
    return frames
