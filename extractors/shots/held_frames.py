"""Frames of a segment whose end is not known yet: few enough to hold, spread evenly however long it gets."""

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import Self

import cv2
import numpy as np
from numpy.typing import NDArray

THUMBNAIL = (16, 16)


@dataclass(eq=False)
class HeldFrames:
    """The frames of an open segment, of which each ``stride``-th is kept."""

    #: how many are held; once there are more, every second one goes, and half as many are taken in from then
    #: on. So between half of ``most`` and all of it stay, whether the segment lasts seconds or hours.
    most: int
    stride: int = 1
    times: list[float] = field(default_factory=list)
    _pixels: list[NDArray[np.uint8]] = field(default_factory=list)
    _skip: int = 0

    def __len__(self) -> int:
        return len(self.times)

    def add(self, time: float, pixels: NDArray[np.uint8]) -> None:
        """Takes in the next frame, or passes it over where a neighbour stands for it.

        time: seconds of the film, later than those before. pixels: uint8 (H, W, 3); copied, since it may be a
        part of a chunk that is large.
        """
        if self._skip:
            self._skip -= 1
            return
        self.times.append(time)
        self._pixels.append(pixels.copy())
        self._thin()
        self._skip = self.stride - 1

    def join(self, later: Self) -> None:
        """Takes in all that a segment holds which turned out to be this one's end."""
        self.times += later.times
        self._pixels += later._pixels
        self.stride = max(self.stride, later.stride)  # a smaller one would hold the end more densely
        self._thin()
        self._skip = self.stride - 1

    def _thin(self) -> None:
        while len(self.times) > self.most:
            del self.times[1::2], self._pixels[1::2]
            self.stride *= 2

    def nearest(self, instants: NDArray[np.float64]) -> list[int]:
        """Positions of the frames that are nearest to ``instants`` (seconds), rising, none twice."""
        return sorted({self._nearest(float(instant)) for instant in instants})

    def _nearest(self, instant: float) -> int:
        right = min(bisect_left(self.times, instant), len(self.times) - 1)
        left = max(0, right - 1)
        return left if instant - self.times[left] <= self.times[right] - instant else right

    def take(self, positions: list[int]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """(times float64 (T,), pixels uint8 (T, H, W, 3)) of the frames there."""
        times = np.array([self.times[position] for position in positions], np.float64)
        return times, np.stack([self._pixels[position] for position in positions])


def most_typical(pixels: NDArray[np.uint8]) -> int:
    """Finds the position of the frame uint8 (T, H, W, 3) that differs least from all others, seen small."""
    # every frame is compared with every other one, which only thumbnails are small enough for
    small = np.stack([cv2.resize(frame, THUMBNAIL, interpolation=cv2.INTER_AREA) for frame in pixels])
    flat = small.reshape(len(small), -1).astype(np.float32)
    distances = np.abs(flat[:, None] - flat[None]).mean(2)
    return int(distances.sum(1).argmin())
