"""Defines the parts of a stream of frames, which leave the decoder one by one, and collects them again.

StreamStart   the clock of the frames that follow. A second one says that the file has turned out to show
              other frames than its index promised: all that came before it is void
FrameChunk    the next frames
StreamEnd     what the file was like, and its sound

Decoding at once is streaming and keeping all of it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio, Frames
from extractors.media import errors
from extractors.media.request import Decoded, DecodeRequest, Limits, Video

CHUNK_FRAMES = 4096  # their times travel as text, and frames may be of a few bytes

#: One frame in each of the sizes asked for, uint8 (H, W, 3).
Sizes: TypeAlias = tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True)
class StreamStart:
    """The clock of the frames that follow."""

    duration: float  #: seconds, the last frame's stay included
    fps: float  #: frames of the file a second, on average
    first_picture: float = 0.0  #: seconds on the clock of players at which the first frame is shown


@dataclass(frozen=True, eq=False)
class FrameChunk:
    """Consecutive frames of those that were asked for."""

    #: for each of ``DecodeRequest.frame_sizes`` the frames, uint8 (T, H, W, 3), RGB, as displayed
    pixels: tuple[NDArray[np.uint8], ...]
    pts: NDArray[np.float64]  #: float64 (T,), seconds from the first shown frame
    until: float  #: when the first frame of the next chunk is shown, infinity where there is none


@dataclass(frozen=True, eq=False)
class StreamEnd:
    """The decode report and the sound.

    audio is None where none was asked for or the file has none (``video.has_audio`` tells).
    """

    video: Video
    audio: Audio | None = None


StreamPart: TypeAlias = StreamStart | FrameChunk | StreamEnd


def split_into_chunks(
    frames: Iterable[Sizes], times: NDArray[np.float64], chunk_bytes: int
) -> Iterator[FrameChunk]:
    """Joins frames into chunks.

    Args:
        frames: each in the same sizes; the k-th is shown at ``times[k]``.
        times: float64 (T,), seconds, rising.
        chunk_bytes: of pixels in a chunk at most, but for a chunk of one frame.
    """
    waiting: list[Sizes] = []
    begin = 0
    for sizes in frames:
        waiting.append(sizes)
        full = (len(waiting) + 1) * sum(picture.nbytes for picture in sizes) > chunk_bytes
        if full or len(waiting) == CHUNK_FRAMES:
            yield _join(waiting, times, begin)
            begin += len(waiting)
            waiting = []
    if waiting:
        yield _join(waiting, times, begin)


def _join(frames: Sequence[Sizes], times: NDArray[np.float64], begin: int) -> FrameChunk:
    end = begin + len(frames)
    pixels = tuple(np.stack(of_one_size) for of_one_size in zip(*frames, strict=True))
    return FrameChunk(pixels, times[begin:end], float(times[end]) if end < len(times) else math.inf)


def collect_stream(parts: Iterable[StreamPart], request: DecodeRequest, limits: Limits) -> Decoded:
    """Reads a stream to its end and keeps its frames.

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
    """Appends a chunk to the frames so far, where they lie: the system moves pages, and copies none."""
    if not len(frames):  # short clips: nothing is copied
        return chunk
    if not frames.flags.owndata:
        frames = frames.copy()
    begin = len(frames)
    frames.resize((begin + len(chunk), *frames.shape[1:]), refcheck=False)
    frames[begin:] = chunk
    return frames
