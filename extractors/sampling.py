"""Which frames of a video are wanted: arithmetic on presentation times, no decoding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Frames of a video that are looked at unless more are asked for: what the demo captioner was chosen with.
FRAMES = 8
# Times are sums of container ticks: a frame due at the asked instant must not be missed by rounding.
TICK = 1e-6


@dataclass(frozen=True)
class Sampling:
    """Frames by count, or by rate where ``fps`` is given.

    count: the frame shown at the middle of each of ``count`` equal parts of the duration.
    fps: the frames shown at 0, 1/fps, 2/fps, … seconds.
    max_frames: a rate that would give more is lowered so that this many spread over the whole time.

    A frame that would be taken twice is taken once, so fewer may come back than were asked for; who
    needs a steady rate asks ``shown`` which frame each instant falls on.
    """

    count: int = FRAMES
    fps: float | None = None
    max_frames: int = 512

    def __post_init__(self) -> None:
        if self.count < 1 or self.max_frames < 1 or (self.fps is not None and not self.fps > 0):
            raise ValueError("count, max_frames and fps must be above zero")

    def instants(self, duration: float) -> NDArray[np.float64]:
        """Seconds (N,) at which to look, rising, all below ``duration`` (or the single instant 0)."""
        if self.fps is None:
            parts = min(self.count, self.max_frames)
            return (np.arange(parts, dtype=np.float64) + 0.5) * np.float64(duration / parts)
        wanted = max(1, int(np.ceil(min(duration * self.fps - TICK, float(self.max_frames + 1)))))
        if wanted > self.max_frames:
            return np.arange(self.max_frames, dtype=np.float64) * np.float64(duration / self.max_frames)
        return np.arange(wanted, dtype=np.float64) / np.float64(self.fps)

    def choose(self, times: NDArray[np.float64], duration: float) -> NDArray[np.int64]:
        """Positions in ``times`` (rising) of the frames to take, rising, no doubles."""
        return np.unique(shown(times, self.instants(duration)))


def shown(times: NDArray[np.float64], instants: NDArray[np.float64]) -> NDArray[np.int64]:
    """For each instant the position of the frame on screen: the last that starts no later."""
    positions = np.searchsorted(times, instants + TICK, side="right") - 1
    return np.maximum(positions, 0).astype(np.int64)
