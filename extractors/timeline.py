"""The clock of a video: seconds of every shown frame, counted from the first."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from extractors.container import BARE_FORMATS
from extractors.index import CLOCK_STAMPED, LONGEST_GAP, Index
from extractors.reading import UNTIMED, Reading


@dataclass(frozen=True, eq=False)
class Timeline:
    """times: float64 (N,) seconds from the first shown frame, rising. duration: seconds, the last frame's
    stay included. estimated: True where the times were made from the nominal rate."""

    times: NDArray[np.float64]
    duration: float
    estimated: bool

    def __len__(self) -> int:
        return len(self.times)


def timeline_of_index(index: Index) -> Timeline:
    """As the packets promise it: their times, or as many steps of the rate as there are packets."""
    if not index.trusted:
        return _from_rate(max(1, index.packets - index.hidden - index.damaged), index)
    if index.container in BARE_FORMATS:
        return _from_rate(len(index.pts), index)
    return _from_ticks(index.pts, index)


def timeline_of_reading(reading: Reading, index: Index) -> Timeline:
    """As decoding to the end showed it. Frames come in display order, even where their times do not."""
    ticks = np.frombuffer(reading.ticks, np.int64)
    ordered = np.sort(ticks)
    gaps = np.diff(ordered)
    timed = len(ticks) > 0 and ordered[0] != UNTIMED and bool((gaps > 0).all())
    restarts = index.container in CLOCK_STAMPED and float(gaps.max(initial=0) * index.time_base) > LONGEST_GAP
    # a clock that runs backwards is a restart too, unless the container never had display times
    backwards = index.container != "avi" and bool((ordered != ticks).any())
    bare = index.container in BARE_FORMATS
    if timed and not bare and not restarts and not backwards:
        return _from_ticks(array("q", ordered.tolist()), index)
    return _from_rate(len(ticks), index)


def _from_ticks(ticks: Sequence[int], index: Index) -> Timeline:
    values = np.asarray(ticks, np.int64)
    tick = float(index.time_base)
    known = index.last_length > 0 and int(values[-1]) == index.newest
    last = index.last_length if known else index.step
    times = (values - values[0]).astype(np.float64) * tick
    return Timeline(times, float(times[-1]) + last * tick, estimated=False)


def _from_rate(frames: int, index: Index) -> Timeline:
    step = float(1 / index.rate)
    return Timeline(np.arange(frames, dtype=np.float64) * np.float64(step), frames * step, estimated=True)
