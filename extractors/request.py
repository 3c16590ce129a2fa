"""What is asked of the decoder, what it may cost, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from extractors.features import Frames
from extractors.sampling import Sampling, shown
from extractors.video import Video
from extractors.windows import Windows


def looked_at(windows: Sequence[Windows], times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
    """Positions in ``times`` (rising) of the frames that any of the windows look at, rising, no doubles."""
    instants = [each.cut(duration, len(times) / duration).instants for each in windows]
    return np.unique(shown(times, np.concatenate([np.zeros(0), *instants])))


@dataclass(frozen=True)
class DecodeRequest:
    """Which frames, how large, and whether sound.

    short_side: pixels of the shorter edge at most; smaller videos are not enlarged.
    audio_rate: samples a second of the mono sound, or None for no sound.
    windows: ways to cut the video; where any are given, the frames that they look at are taken, and
    ``sampling`` is left aside.
    """

    sampling: Sampling = field(default_factory=Sampling)
    short_side: int = 256
    audio_rate: int | None = None
    windows: tuple[Windows, ...] = ()

    def __post_init__(self) -> None:
        if self.short_side < 1 or (self.audio_rate is not None and self.audio_rate < 1):
            raise ValueError("short_side and audio_rate must be at least 1")

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Positions in ``times`` (rising) of the frames to take, rising, no doubles."""
        if self.windows:
            return looked_at(self.windows, times, duration)
        return self.sampling.choose(times, duration)


@dataclass(frozen=True)
class Limits:
    """What one file may cost. Passing any of them is a named error, the sound's length excepted.

    seconds: wall clock. memory: bytes of address space that decoding may add to its process.
    pixels: of one stored frame (8K has 33 million). max_duration: seconds of video.
    max_frames: frames in the file. audio_seconds: sound read from the start; more is cut, with a warning.
    lost_share: of the frames tried, the share that may be undecodable.
    """

    seconds: float = 300.0
    memory: int = 3 << 30
    pixels: int = 40_000_000
    max_duration: float = 4 * 3600.0
    max_frames: int = 2_000_000
    audio_seconds: float = 1800.0
    lost_share: float = 0.5


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono sound on the video's clock: sample 0 belongs to the first shown frame.

    samples: float32 (N,), in [-1, 1]. rate: samples a second.
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True, eq=False)
class Decoded:
    """audio is None where none was asked for or the file has none (``video.has_audio`` tells)."""

    video: Video
    frames: Frames
    audio: Audio | None = None
