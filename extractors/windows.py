"""Chooses which times of a video are looked at: single frames, or windows of them for the rows of a stream.

Arithmetic on presentation times, nothing is decoded here. ``Sampling`` is for who wants frames. For
``Windows`` a clock ticks through the video: at its own average rate, at ``extraction_fps``, or
``extraction_total`` times in all. Windows of ``stack_size`` ticks are laid ``step_size`` ticks apart. Times
and not frame numbers are what is asked of the decoder, so that a video whose frames come unevenly is cut
evenly.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Frames of a video that networks of pictures look at unless others are asked for: the demo's captioners were
#: trained and chosen with as many (docs/results/clips.md).
FRAMES = 8
# Times are sums of container ticks: a frame due at the asked instant must not be missed by rounding.
TICK = 1e-6


@dataclass(frozen=True)
class Sampling:
    """Frames by count, or by rate where ``fps`` is given.

    A frame that would be taken twice is taken once, so fewer may come back than were asked for; who
    needs a steady rate asks ``find_shown_frames`` which frame each instant falls on.
    """

    count: int = FRAMES  #: the frame shown at the middle of each of ``count`` equal parts of the duration
    fps: float | None = None  #: the frames shown at 0, 1/fps, 2/fps, … seconds
    #: a rate that would give more is lowered so that this many spread over the whole time
    max_frames: int = 512

    def __post_init__(self) -> None:
        if self.count < 1 or self.max_frames < 1 or (self.fps is not None and not self.fps > 0):
            raise ValueError("count, max_frames and fps must be above zero")

    def instants(self, duration: float) -> NDArray[np.float64]:
        """Computes the seconds (N,) of the frames: rising, below ``duration`` (or the single instant 0)."""
        if self.fps is None:
            parts = min(self.count, self.max_frames)
            return (np.arange(parts, dtype=np.float64) + 0.5) * np.float64(duration / parts)
        count = max(1, int(np.ceil(min(duration * self.fps - TICK, float(self.max_frames + 1)))))
        if count > self.max_frames:
            return np.arange(self.max_frames, dtype=np.float64) * np.float64(duration / self.max_frames)
        return np.arange(count, dtype=np.float64) / np.float64(self.fps)

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Chooses positions in ``times`` (rising) of the frames to take, rising, no doubles."""
        return np.unique(find_shown_frames(times, self.instants(duration)))


def find_shown_frames(times: NDArray[np.float64], instants: NDArray[np.float64]) -> NDArray[np.int64]:
    """Finds for each instant the position of the frame on screen: the last that starts no later."""
    positions = np.searchsorted(times, instants + TICK, side="right") - 1
    return np.maximum(positions, 0).astype(np.int64)


#: Seconds by which a frame's time may have been rounded up and the frame is still not missed.
LATENESS = 0.01


@dataclass(frozen=True, eq=False)
class Cut:
    """The windows of one video."""

    #: float64 (M,), rising, seconds at which any window looks; below the duration.
    instants: NDArray[np.float64]
    #: int64 (N, stack_size + ahead), positions in ``instants``; the tail window repeats its last frame.
    index: NDArray[np.int64]
    padded: NDArray[np.bool_]  #: bool (N,), True where a window does so
    start: NDArray[np.float64]  #: float64 (N,), seconds at which a window's first frame begins
    end: NDArray[np.float64]  #: float64 (N,), seconds at which its last frame ends, repetitions not counted

    def __len__(self) -> int:
        return len(self.index)


@dataclass(frozen=True)
class Windows:
    """Cuts a video into windows, by the field's names for it.

    Raises ValueError where a number is below its least, or both a rate and a total are given.
    """

    stack_size: int = 1  #: frames of a window
    #: Frames from one window's first to the next one's. Both count ticks of the extraction clock.
    step_size: int = 1
    extraction_fps: float | None = None  #: ticks a second, None for the video's own average rate
    #: That many ticks, each in the middle of an equal part of the whole time.
    extraction_total: int | None = None
    #: Where there would be more windows, they are laid further apart so that this many spread over the whole
    #: time; not applied to ``extraction_total``, which names its own amount.
    most: int = 64
    #: Frames looked at after each window, as flow does for its last pair; they count in no time, and repeat
    #: the last frame at the video's end.
    ahead: int = 0

    def __post_init__(self) -> None:
        if self.extraction_fps is not None and self.extraction_total is not None:
            raise ValueError("extraction_fps and extraction_total exclude each other: give one of them")
        if min(self.stack_size, self.step_size, self.most) < 1:
            raise ValueError("stack_size, step_size and most must be at least 1")
        if self.ahead < 0:
            raise ValueError("ahead must be at least 0")
        if self.extraction_total is not None and self.extraction_total < 1:
            raise ValueError("extraction_total must be at least 1")
        if self.extraction_fps is not None and not 0 < self.extraction_fps < np.inf:
            raise ValueError("extraction_fps must be above zero")

    def cut(self, duration: float, fps: float) -> Cut:
        """Cuts a video into windows, of ``duration`` seconds whose own average rate is ``fps``.

        There is always one at least, and while there are no more than ``most`` no tick between the first
        and the last is left out (unless step_size exceeds stack_size, which asks for that).
        """
        if not (duration > 0 and fps > 0):
            raise ValueError("a video's duration and rate must be above zero")
        ticks, rate, offset = self._clock(duration, fps)
        first = self._starts(ticks)[:, None]
        looked_at = np.minimum(first + np.arange(self.stack_size + self.ahead), ticks - 1)
        used, index = np.unique(looked_at, return_inverse=True)
        last = looked_at[:, self.stack_size - 1]
        return Cut(
            instants=used / rate + offset,
            index=index.reshape(looked_at.shape).astype(np.int64),
            padded=first[:, 0] + self.stack_size > ticks,
            start=first[:, 0] / rate,
            end=np.where(last == ticks - 1, np.float64(duration), (last + 1) / rate),
        )

    def _clock(self, duration: float, fps: float) -> tuple[int, np.float64, np.float64]:
        """(ticks in all, ticks a second, seconds from a tick's begin to the instant that it looks at)."""
        if self.extraction_total is not None:
            rate = np.float64(self.extraction_total / duration)
            return self.extraction_total, rate, 0.5 / rate
        rate = np.float64(self.extraction_fps or fps)
        # the middle of a frame's stay, or a little later than due: containers round times, GIF to hundredths
        latest = np.inf if self.extraction_fps is None else LATENESS
        offset = np.float64(min(0.5 / max(fps, rate), latest))
        return max(1, int(np.ceil((duration - offset) * rate))), rate, min(offset, np.float64(duration / 2))

    def _starts(self, ticks: int) -> NDArray[np.int64]:
        """Returns the first tick of every window, rising."""
        spare = max(0, ticks - self.stack_size)
        count = min(1 + -(-spare // self.step_size), -(-ticks // self.step_size))
        if self.extraction_total is not None or count <= self.most:
            return np.arange(count, dtype=np.int64) * self.step_size
        places = (np.arange(self.most) + np.float64(0.5)) * np.float64((spare + 1) / self.most)
        return places.astype(np.int64)


@dataclass(frozen=True)
class WindowOptions:
    """The members of ``Windows`` that a user may set of any extractor; None leaves the extractor's own.

    Raises ValueError where both a rate and a total are given.
    """

    stack_size: int | None = None
    step_size: int | None = None
    extraction_fps: float | None = None
    extraction_total: int | None = None
    most: int | None = None

    def __post_init__(self) -> None:
        if self.extraction_fps is not None and self.extraction_total is not None:
            raise ValueError("extraction_fps and extraction_total exclude each other: give one of them")

    def over(self, own: Windows) -> Windows:
        """Puts what was chosen in ``own``'s place; a rate takes a total's place, and the other way round.

        Raises ValueError where the whole makes no sense.
        """
        chosen: dict[str, Any] = {name: value for name, value in asdict(self).items() if value is not None}
        if self.extraction_fps is not None:
            chosen["extraction_total"] = None
        if self.extraction_total is not None:
            chosen["extraction_fps"] = None
        return replace(own, **chosen)
