"""A video's frames as they are handed over one chunk after another, so that no one ever holds them all.

Begin   the clock of the frames that follow. A second Begin says that the file has turned out to show
        other frames than its index promised: all that came before it is void
Chunk   the next frames
End     what the file was like, and its sound
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio
from extractors.media.request import looked_at_in
from extractors.media.video import Video
from extractors.windows import Windows

CHUNK_BYTES = 16 << 20
CHUNK_FRAMES = 4096  # their times travel as text, and frames may be of a few bytes

#: One frame in each of the sizes asked for, uint8 (H, W, 3).
Sizes: TypeAlias = tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True)
class StreamRequest:
    """The frames that any of several ways to cut a video looks at, decoded once.

    short_sides: the sizes in which each frame is handed over: pixels of the shorter edge at most, where
    smaller videos are not enlarged, or None for the frame as stored. So what an extractor sees does not
    depend on what others need. audio_rate: samples a second of the mono sound, or None for no sound.
    chunk_bytes: pixels handed over at a time, a single frame at least. part: as ``DecodeRequest`` has it.
    """

    windows: tuple[Windows, ...]
    short_sides: tuple[int | None, ...] = (None,)
    audio_rate: int | None = None
    chunk_bytes: int = CHUNK_BYTES
    part: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        given = [each for each in (*self.short_sides, self.audio_rate, self.chunk_bytes) if each is not None]
        if min(given) < 1 or not self.short_sides:
            raise ValueError("short_sides, audio_rate and chunk_bytes must be at least 1, one size be given")

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Positions in ``times`` (rising) of the frames to hand over, rising, no doubles."""
        return looked_at_in(self.part, self.windows, times, duration)


@dataclass(frozen=True)
class Begin:
    """duration: seconds, the last frame's stay included. fps: frames of the file a second, on average."""

    duration: float
    fps: float


@dataclass(frozen=True, eq=False)
class Chunk:
    """pixels: for each of ``short_sides`` the frames, uint8 (T, H, W, 3), RGB, as displayed. pts: float64
    (T,), seconds from the first shown frame. until: when the first frame of the next chunk is shown, infinity
    where there is none."""

    pixels: tuple[NDArray[np.uint8], ...]
    pts: NDArray[np.float64]
    until: float


@dataclass(frozen=True, eq=False)
class End:
    """audio is None where none was asked for or the file has none (``video.has_audio`` tells)."""

    video: Video
    audio: Audio | None = None


StreamPart: TypeAlias = Begin | Chunk | End


def chunked(frames: Iterable[Sizes], times: NDArray[np.float64], chunk_bytes: int) -> Iterator[Chunk]:
    """Frames in the same sizes, the k-th of them shown at ``times[k]``, by ``chunk_bytes`` at most."""
    waiting: list[Sizes] = []
    begin = 0
    for sizes in frames:
        waiting.append(sizes)
        full = (len(waiting) + 1) * sum(picture.nbytes for picture in sizes) > chunk_bytes
        if full or len(waiting) == CHUNK_FRAMES:
            yield _chunk(waiting, times, begin)
            begin += len(waiting)
            waiting = []
    if waiting:
        yield _chunk(waiting, times, begin)


def _chunk(frames: Sequence[Sizes], times: NDArray[np.float64], begin: int) -> Chunk:
    end = begin + len(frames)
    pixels = tuple(np.stack(of_one_size) for of_one_size in zip(*frames, strict=True))
    return Chunk(pixels, times[begin:end], float(times[end]) if end < len(times) else math.inf)
