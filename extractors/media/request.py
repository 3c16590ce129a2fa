"""Values that ask for a decode and that it returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio, Footage, Frames
from extractors.frame_size import FrameSize
from extractors.media.errors import NoFrames
from extractors.media.video import MediaWarning, Video
from extractors.sampling import Sampling, shown
from extractors.windows import Windows

# A rate asks for what is on screen, and times that are rounded show some frame twice: not worth a word.
LEAST_OF_A_RATE = 0.5


def looked_at(
    windows: Sequence[Windows], times: NDArray[np.float64], duration: float, fps: float | None = None
) -> NDArray[np.int64]:
    """Positions in ``times`` (rising) of the frames that any of the windows look at, rising, no doubles.

    fps: of the video on average, by default that of ``times``.
    """
    instants = [each.cut(duration, fps or len(times) / duration).instants for each in windows]
    return np.unique(shown(times, np.concatenate([np.zeros(0), *instants])))


def counted(windows: Sequence[Windows], duration: float, fps: float) -> int:
    """How many frames the windows ask for, as far as they ask for a number of them."""
    totals = [each for each in windows if each.extraction_total is not None]
    instants = [each.cut(duration, fps).instants for each in totals]
    return len(np.unique(np.concatenate([np.zeros(0), *instants])))


def fewer_frames(asked: int, taken: int, there: int) -> list[MediaWarning]:
    """A warning where fewer frames were taken than asked for though the file has more."""
    if taken >= min(asked, there):
        return []
    why = "no others are on screen at the times that were looked at"
    found = f"{asked} frames were wanted and {taken} of the {there} taken"
    return [MediaWarning("fewer_frames", f"{found}: {why}.")]


def part_of(
    times: NDArray[np.float64], duration: float, start: float, end: float
) -> tuple[int, NDArray[np.float64], float]:
    """(position of the first frame, times from ``start`` on, seconds) of what is shown until ``end``.

    Raises NoFrames where the video ends before ``start``.
    """
    end = min(end, duration)
    if start >= end:
        raise NoFrames(f"The video lasts {duration:.1f} seconds, and its part begins at {start:.1f}.")
    first = int(shown(times, np.array([start]))[0])
    inside = times[first : int(np.searchsorted(times, end))] - start
    return first, np.maximum(inside, 0.0), end - start


def looked_at_in(
    part: tuple[float, float] | None,
    windows: Sequence[Windows],
    times: NDArray[np.float64],
    duration: float,
) -> NDArray[np.int64]:
    """The same of a part of the file (None: all of it) cut as if nothing else were in it.

    Raises NoFrames where the video ends before its part begins.
    """
    first, fps = 0, len(times) / duration
    if part is not None:
        first, times, duration = part_of(times, duration, *part)
    return first + looked_at(windows, times, duration, fps)


@dataclass(frozen=True)
class DecodeRequest:
    """Which frames, how large, and whether sound.

    short_side: pixels of the shorter edge at most; smaller videos are not enlarged.
    audio_rate: samples a second of the mono sound, or None for no sound.
    windows: ways to cut the video; where any are given, the frames that they look at are taken, and
    ``sampling`` is left aside.
    sizes: in which extractors are to be handed the frames beside ``short_side``'s; ``Decoder.decode`` and
    extractors/media/gathered.py make them.
    part: (start, end), seconds of the file: frames are chosen as if nothing else were in it. Their times and
    the sound stay the file's; extractors/media/request.py makes a video of its own of them.
    """

    sampling: Sampling = field(default_factory=Sampling)
    short_side: int = 256
    audio_rate: int | None = None
    windows: tuple[Windows, ...] = ()
    part: tuple[float, float] | None = None
    sizes: tuple[FrameSize, ...] = ()

    def __post_init__(self) -> None:
        if self.short_side < 1 or (self.audio_rate is not None and self.audio_rate < 1):
            raise ValueError("short_side and audio_rate must be at least 1")

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Positions in ``times`` (rising) of the frames to take, rising, no doubles.

        Raises NoFrames where the file ends before its part begins.
        """
        if self.windows:
            return looked_at_in(self.part, self.windows, times, duration)
        first = 0
        if self.part is not None:
            first, times, duration = part_of(times, duration, *self.part)
        return first + self.sampling.choose(times, duration)

    def shortfall(self, times: NDArray[np.float64], duration: float, taken: int) -> list[MediaWarning]:
        """A warning where ``choose`` took fewer frames than asked for, from a file that has more."""
        fps = len(times) / duration
        if self.part is not None:
            _, times, duration = part_of(times, duration, *self.part)
        if self.windows:
            return fewer_frames(counted(self.windows, duration, fps), taken, len(times))
        asked = len(self.sampling.instants(duration))
        if self.sampling.fps is not None and taken > LEAST_OF_A_RATE * min(asked, len(times)):
            return []
        return fewer_frames(asked, taken, len(times))

    @classmethod
    def together(cls, requests: Sequence[DecodeRequest]) -> DecodeRequest:
        """One decode that has every frame, and the sound, that any of them asks for.

        Raises ValueError where there is none, or some ask by windows and others at a rate.
        """
        distinct = list(dict.fromkeys(requests))
        if not distinct:
            raise ValueError("nothing is asked of the decoder")
        rates = [each.audio_rate for each in distinct if each.audio_rate is not None]
        first = replace(distinct[0], audio_rate=max(rates, default=None))
        if all(replace(each, audio_rate=first.audio_rate) == first for each in distinct):
            return first
        windows = dict.fromkeys(window for each in distinct for window in each.as_windows())
        side = max(each.short_side for each in distinct)
        sizes = dict.fromkeys(size for each in distinct for size in each.sizes)
        return replace(first, short_side=side, windows=tuple(windows), sizes=tuple(sizes))

    def as_windows(self) -> tuple[Windows, ...]:
        """The frames in the words of windows. Raises ValueError where they are asked for at a rate."""
        if self.windows:
            return self.windows
        if self.sampling.fps is not None:
            raise ValueError("frames at a rate cannot be joined with windows")
        return (Windows(extraction_total=self.sampling.count),)


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
class Decoded:
    """audio is None where none was asked for or the file has none (``video.has_audio`` tells). sized: the
    same frames in each of the request's ``sizes``."""

    video: Video
    frames: Frames
    audio: Audio | None = None
    sized: Mapping[FrameSize, NDArray[np.uint8]] = field(default_factory=dict)

    @property
    def footage(self) -> Footage:
        """What is shown and heard, without what the file is."""
        frames = self.frames
        return Footage(frames.pixels, frames.pts, frames.duration, frames.fps, self.audio, self.sized)


# Seconds of a file as a video of their own: a clip that is cut out of a film by its times alone.


def cut_clip(footage: Footage, start: float, end: float) -> Footage:
    """What was decoded with ``DecodeRequest.part`` (start, end), its clock beginning at ``start``.

    The frame that is on screen at ``start`` begins there, and the sound is that of the part alone.
    """
    end = min(end, footage.duration)
    times = np.maximum(footage.pts - start, 0.0)
    sound = None if footage.sound is None else _sound(footage.sound, start, end)
    return replace(footage, pts=times, duration=end - start, sound=sound)


def _sound(sound: Audio, start: float, end: float) -> Audio:
    first, last = round(start * sound.rate), round(end * sound.rate)
    return replace(sound, samples=sound.samples[first:last])
