"""Defines the parts of a stream of frames, which leave the decoder so that nobody holds all of them.

StreamStart   the clock of the frames that follow. A second one says that the file has turned out to show
              other frames than its index promised: all that came before it is void
FrameChunk    the next frames
StreamEnd     what the file was like, and its sound
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio
from extractors.media.video import Video

CHUNK_FRAMES = 4096  # their times travel as text, and frames may be of a few bytes

#: One frame in each of the sizes asked for, uint8 (H, W, 3).
Sizes: TypeAlias = tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True)
class StreamStart:
    """The clock of the frames that follow.

    duration: seconds, the last frame's stay included. fps: frames of the file a second, on average.
    """

    duration: float
    fps: float


@dataclass(frozen=True, eq=False)
class FrameChunk:
    """Consecutive frames of those that were asked for.

    pixels: for each of ``DecodeRequest.frame_sizes`` the frames, uint8 (T, H, W, 3), RGB, as displayed.
    pts: float64 (T,), seconds from the first shown frame.
    until: when the first frame of the next chunk is shown, infinity where there is none.
    """

    pixels: tuple[NDArray[np.uint8], ...]
    pts: NDArray[np.float64]
    until: float


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
    """Join frames into chunks.

    Args:
        frames: each in the same sizes; the k-th is shown at ``times[k]``.
        times: float64 (T,), seconds, rising.
        chunk_bytes: of pixels in a chunk at most, but for a chunk of one frame.

    Returns:
        The chunks, in order.
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
