"""Defines what a decode is asked for and what it returns: frames, and facts about the file; chooses
frames.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio, Footage, Frames, FrameSize
from extractors.media.errors import MediaWarning, NoFrames, WarningCode
from extractors.windows import Sampling, Windows, find_shown_frames

# A rate asks for what is on screen, and times that are rounded show some frame twice: not worth a word.
LEAST_OF_A_RATE = 0.5
CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class Video:
    """Holds the facts about one file; times are seconds from the first shown frame."""

    container: str
    codec: str
    duration: float
    width: int  #: pixels as displayed, rotation and pixel aspect applied
    height: int
    rotation: int  #: degrees counter-clockwise that the frames were turned by, one of 0, 90, 180, 270
    fps: float | None  #: nominal rate that the container claims, None where it claims none
    fps_average: float  #: frames ÷ duration
    frames: int  #: shown frames found
    frames_expected: int | None  #: what the header claims, None where it claims nothing
    frames_counted: bool  #: True where ``frames`` was counted by decoding all of them, False by packets
    frames_lost: int  #: packets that were tried and could not be decoded
    times_estimated: bool  #: True where the file has no usable times and they were made from the rate
    has_audio: bool
    audio_codec: str | None = None
    audio_channels: int | None = None
    audio_rate: int | None = None
    first_picture: float = 0.0  #: seconds on the clock that players use at which the first frame is shown
    warnings: tuple[MediaWarning, ...] = ()

    def media(self) -> dict[str, Any]:
        """Makes the ``media`` member of a job's answer."""
        facts = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "warnings"}
        rounded = {name: round(facts[name], 6) for name in ("duration", "fps_average", "first_picture")}
        return {**facts, **rounded}


def _count_asked_for(windows: Sequence[Windows], duration: float, fps: float) -> int:
    """Counts the instants at which windows look at a video of ``duration`` seconds and ``fps`` on average.

    Those that fall together count once; windows at a rate ask for no number.
    """
    totals = [each for each in windows if each.extraction_total is not None]
    instants = [each.cut(duration, fps).instants for each in totals]
    return len(np.unique(np.concatenate([np.zeros(0), *instants])))


def _warn_of_fewer_frames(asked: int, taken: int, available: int) -> list[MediaWarning]:
    """Warns where fewer frames were taken than asked for though the file has more.

    Returns one warning, or none.
    """
    if taken >= min(asked, available):
        return []
    return [WarningCode.FEWER_FRAMES.warn(asked=asked, taken=taken, available=available)]


@dataclass(frozen=True)
class TimeSpan:
    """The frames of one part of a file."""

    first: int  #: position of the first of them in the file
    times: NDArray[np.float64]  #: float64 (T,), seconds from the part's start at which they are shown
    duration: float  #: seconds of the part


def _select_span(times: NDArray[np.float64], duration: float, part: tuple[float, float] | None) -> TimeSpan:
    """Selects the frames that are shown in a part (start, end), None for the whole; as of ``choose``.

    The one on screen at the start is the first. Raises NoFrames where the video ends before its part begins.
    """
    if part is None:
        return TimeSpan(0, times, duration)
    start, end = part[0], min(part[1], duration)
    if start >= end:
        raise NoFrames(f"The video lasts {duration:.1f} seconds, and its part begins at {start:.1f}.")
    first = int(find_shown_frames(times, np.array([start]))[0])
    inside = times[first : int(np.searchsorted(times, end))] - start
    return TimeSpan(first, np.maximum(inside, 0.0), end - start)


@dataclass(frozen=True)
class DecodeRequest:
    """Asks for frames of a file, in some sizes, and for its sound."""

    #: Frames by count or by rate; left aside where there are ``windows``. None takes no frame.
    sampling: Sampling | None = field(default_factory=Sampling)
    #: Pixels of the shorter edge of ``Decoded.frames`` at most; smaller videos are not enlarged. None where
    #: frames are wanted in ``sizes`` alone, and without any of these as stored.
    short_side: int | None = 256
    audio_rate: int | None = None  #: samples a second of the mono sound, or None for no sound
    #: Ways to cut the video; where any are given, the frames that they look at are taken.
    windows: tuple[Windows, ...] = ()
    #: (start, end), seconds of the file: frames are chosen as if nothing else were in it. Their times and the
    #: sound stay the file's; ``cut_clip`` makes a video of its own of them.
    part: tuple[float, float] | None = None
    #: In which extractors are to be handed the frames beside ``short_side``'s, so that what one sees does not
    #: depend on what others need.
    sizes: tuple[FrameSize, ...] = ()
    chunk_bytes: int = CHUNK_BYTES  #: pixels that a stream hands over at a time, a single frame at least
    #: Frames at a rate, which are taken beside those that ``windows`` look at.
    rates: tuple[Sampling, ...] = ()
    #: Which of the frames a visitor is shown where windows take many, None for all.
    shown: Sampling | None = None

    def __post_init__(self) -> None:
        numbers = [each for each in (self.short_side, self.audio_rate, self.chunk_bytes) if each is not None]
        if min(numbers) < 1:
            raise ValueError("short_side, audio_rate and chunk_bytes must be at least 1")

    @property
    def frame_sizes(self) -> tuple[FrameSize, ...]:
        """Lists the sizes in which each frame is returned, that of ``Decoded.frames`` first; no doubles."""
        first = () if self.short_side is None else (FrameSize(self.short_side),)
        return tuple(dict.fromkeys((*first, *self.sizes))) or (FrameSize(),)

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Chooses the frames to take of a file of ``duration`` seconds that shows its frames at ``times``
        (T,).

        Returns their positions in ``times``, int64 (N,), rising, no doubles. Raises NoFrames where the file
        ends before its part begins.
        """
        span = _select_span(times, duration, self.part)
        if self.windows or self.sampling is None:
            fps = len(times) / duration
            instants = [each.cut(span.duration, fps).instants for each in self.windows]
            by_windows = np.unique(find_shown_frames(span.times, np.concatenate([np.zeros(0), *instants])))
            at_rates = [rate.choose(span.times, span.duration) for rate in self.rates]
            return span.first + np.unique(np.concatenate([by_windows, *at_rates]))
        return span.first + self.sampling.choose(span.times, span.duration)

    def warn_of_shortfall(
        self, times: NDArray[np.float64], duration: float, taken: int
    ) -> list[MediaWarning]:
        """Warns where ``choose`` took fewer frames than asked for, from a file that has more.

        Args:
            times, duration: as of ``choose``.
            taken: how many it took.
        """
        fps, span = len(times) / duration, _select_span(times, duration, self.part)
        available = len(span.times)
        if self.windows or self.sampling is None:
            return _warn_of_fewer_frames(_count_asked_for(self.windows, span.duration, fps), taken, available)
        instants = len(self.sampling.instants(span.duration))
        if self.sampling.fps is not None and taken > LEAST_OF_A_RATE * min(instants, available):
            return []
        return _warn_of_fewer_frames(instants, taken, available)

    @classmethod
    def together(cls, requests: Sequence[Self]) -> Self:
        """Joins requests to one decode that has every frame, and the sound, that any of them asks for.

        Each frame comes in the sizes of all. Raises ValueError where there is no request.
        """
        distinct = list(dict.fromkeys(requests))
        if not distinct:
            raise ValueError("nothing is asked of the decoder")
        of_sound = [each.audio_rate for each in distinct if each.audio_rate is not None]
        first = replace(distinct[0], audio_rate=max(of_sound, default=None))
        if all(replace(each, audio_rate=first.audio_rate) == first for each in distinct):
            return first
        windows = dict.fromkeys(window for each in distinct for window in each.as_windows())
        rates = dict.fromkeys(rate for each in distinct for rate in each.as_rates())
        sides = [each.short_side for each in distinct if each.short_side is not None]
        side = max(sides, default=None)
        smaller = [FrameSize(each) for each in sides if each != side]
        sizes = dict.fromkeys([*(size for each in distinct for size in each.sizes), *smaller])
        sampling = None if rates else first.sampling
        shown = [each.shown or (None if each.windows else each.sampling) for each in distinct]
        return replace(
            first,
            sampling=sampling,
            shown=None if None in shown else shown[0],
            short_side=side,
            windows=tuple(windows),
            rates=tuple(rates),
            sizes=tuple(sizes),
        )

    def as_windows(self) -> tuple[Windows, ...]:
        """Express the choice of frames by windows, as far as they are not asked for at a rate."""
        if self.windows or self.sampling is None or self.sampling.fps is not None:
            return self.windows
        return (Windows(extraction_total=self.sampling.count),)

    def as_rates(self) -> tuple[Sampling, ...]:
        """Lists the rates at which frames are asked for."""
        if self.windows or self.sampling is None or self.sampling.fps is None:
            return self.rates
        return (self.sampling,)


@dataclass(frozen=True)
class Limits:
    """Limits on what one file may cost. Passing any of them is a named error, the sound's length excepted."""

    seconds: float = 300.0  #: wall clock
    memory: int = 3 << 30  #: bytes of address space that decoding may add to its process
    pixels: int = 40_000_000  #: of one stored frame (8K has 33 million)
    max_duration: float = 4 * 3600.0  #: seconds of video
    max_frames: int = 2_000_000  #: frames in the file
    audio_seconds: float = 1800.0  #: sound read from the start; more is cut, with a warning
    lost_share: float = 0.5  #: of the frames tried, the share that may be undecodable


@dataclass(frozen=True, eq=False)
class Decoded:
    """All frames and the sound of one request.

    audio is None where none was asked for or the file has none (``video.has_audio`` tells).
    sized: the same frames in each of the request's ``frame_sizes`` but the first. shown: the request's.
    """

    video: Video
    frames: Frames
    audio: Audio | None = None
    sized: Mapping[FrameSize, NDArray[np.uint8]] = field(default_factory=dict)
    shown: Sampling | None = None

    @property
    def footage(self) -> Footage:
        """Frames and sound without the decode report."""
        frames = self.frames
        return Footage(
            frames.pixels, frames.pts, frames.duration, frames.fps, self.audio, self.sized, self.shown
        )


def cut_clip(footage: Footage, start: float, end: float) -> Footage:
    """Makes a video of its own of what was decoded with ``DecodeRequest.part``.

    Args:
        footage: frames and sound on the file's clock.
        start: seconds; the frame that is on screen then begins there.
        end: seconds.

    Returns:
        The same frames on a clock that begins at ``start``, and the sound of the part alone.
    """
    end = min(end, footage.duration)
    times = np.maximum(footage.pts - start, 0.0)
    sound = None if footage.sound is None else _cut_sound(footage.sound, start, end)
    return replace(footage, pts=times, duration=end - start, sound=sound)


def _cut_sound(sound: Audio, start: float, end: float) -> Audio:
    first, last = round(start * sound.rate), round(end * sound.rate)
    return replace(sound, samples=sound.samples[first:last])
