"""Works out the clock of a video: seconds of every shown frame, counted from the first.

Files are believed as far as they agree with themselves. A wrong time among good ones is set between its
neighbours and all others stay; a frame that would stay on longer than header and edit list let the film last
is shortened to what they say. Only where most times are no use do all of them follow from the rate.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from extractors.media.containers.container import BARE_FORMATS
from extractors.media.containers.packet_index import CLOCK_STAMPED, UNTIMED, WRAP, PacketIndex
from extractors.media.frame_reader import DecodePass

# Of all times, those that may be wrong while the others are still believed.
LARGEST_WRONG_SHARE = 1 / 3
# Headers round, and count the last frame's stay or leave it out: seconds, and share of what they claim.
STAY_SLACK = 1.0
STAY_SLACK_SHARE = 0.1


@dataclass(frozen=True, eq=False)
class Timeline:
    """Times of all shown frames."""

    times: NDArray[np.float64]  #: float64 (N,) seconds from the first shown frame, rising
    duration: float  #: seconds, the last frame's stay included
    estimated: bool  #: True where the times were made from the nominal rate
    mended: int = 0  #: frames whose own time was wrong and was set between its neighbours'
    shortened: float = 0.0  #: seconds that a frame's stay was longer than header and edit list allow

    def __len__(self) -> int:
        return len(self.times)


def timeline_of_index(index: PacketIndex) -> Timeline:
    """Makes the clock that the packets promise: their times, or a step of the rate for each of them."""
    if index.container in BARE_FORMATS:
        return _from_rate(max(1, index.packets - index.hidden - index.damaged), index)
    if index.trusted:
        return _from_ticks(index.pts, index)
    return _from_doubtful(np.asarray(index.pts, np.int64), index)


def timeline_of_reading(reading: DecodePass, index: PacketIndex) -> Timeline:
    """Makes the clock that decoding to the end showed.

    Frames come in display order, even where their times do not.
    """
    ticks = np.frombuffer(reading.ticks, np.int64)
    if index.container in BARE_FORMATS:
        return _from_rate(len(ticks), index)
    # AVI has no presentation times: what its frames carry are times of decoding, each once
    return _from_doubtful(np.sort(ticks) if index.container == "avi" else ticks, index)


def _from_doubtful(ticks: NDArray[np.int64], index: PacketIndex) -> Timeline:
    """Believes ticks in display order, wrong ones mended where they are few, else times from the rate."""
    ticks = _undo_false_wraps(ticks) if index.container in CLOCK_STAMPED else ticks
    if len(ticks) and ticks.min() != UNTIMED and bool((np.diff(ticks) > 0).all()):
        return _from_ticks(ticks, index)
    good = find_rising(ticks)
    wrong = len(ticks) - int(good.sum())
    if len(ticks) == 0 or wrong > LARGEST_WRONG_SHARE * len(ticks):
        frames = len(ticks) or index.packets - index.hidden - index.damaged
        return _from_rate(max(1, frames), index)
    return replace(_from_ticks(mend_ticks(ticks, good, index.step), index), mended=wrong)


def _undo_false_wraps(ticks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Undoes what FFmpeg makes of a clock that jumps back: it takes it for one that went once around."""
    places = np.flatnonzero(ticks != UNTIMED)
    around = np.cumsum(np.diff(ticks[places], prepend=ticks[places][:1]) > WRAP // 2)
    unwrapped = ticks.copy()
    unwrapped[places] -= around * WRAP
    return unwrapped


def _from_ticks(
    ticks: Sequence[int] | NDArray[np.int64] | NDArray[np.float64], index: PacketIndex
) -> Timeline:
    values = np.asarray(ticks)
    tick = float(index.time_base)
    is_last_known = index.last_length > 0 and int(values[-1]) == index.newest
    last = index.last_length if is_last_known else index.step
    times = (values - values[0]).astype(np.float64) * tick
    timeline = Timeline(times, float(times[-1]) + last * tick, estimated=False)
    return _shorten_to_claim(timeline, index.claimed_seconds, index.step * tick)


def _from_rate(frames: int, index: PacketIndex) -> Timeline:
    step = float(1 / index.rate)
    return Timeline(np.arange(frames, dtype=np.float64) * np.float64(step), frames * step, estimated=True)


def _shorten_to_claim(timeline: Timeline, claimed: float | None, step: float) -> Timeline:
    """Shortens the longest stay where that alone makes the film longer than its header claims."""
    if claimed is None:
        return timeline
    excess = timeline.duration - claimed
    stays = np.diff(timeline.times, append=timeline.duration)
    longest = int(stays.argmax())
    if excess <= max(STAY_SLACK, STAY_SLACK_SHARE * claimed) or stays[longest] < excess:
        return timeline
    least = min(step, claimed / len(timeline))
    excess = min(excess, max(0.0, float(stays[longest]) - least))
    times = timeline.times.copy()
    times[longest + 1 :] -= excess
    return replace(timeline, times=times, duration=timeline.duration - excess, shortened=excess)


def find_rising(ticks: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Finds the good ticks: the largest choice that rises strictly, of equal choices the earlier ticks.

    Found from the end to the begin by patience sorting, in N log N steps.
    """
    ends: list[int] = []
    piles: list[int] = []
    before = array("q", [-1]) * len(ticks)
    for place in range(len(ticks) - 1, -1, -1):
        tick = int(ticks[place])
        if tick == UNTIMED:
            continue
        pile = bisect_left(ends, -tick)
        ends[pile : pile + 1], piles[pile : pile + 1] = [-tick], [place]
        before[place] = piles[pile - 1] if pile else -1
    good = np.zeros(len(ticks), np.bool_)
    place = piles[-1] if piles else -1
    while place >= 0:
        good[place], place = True, before[place]
    return good


def mend_ticks(ticks: NDArray[np.int64], good: NDArray[np.bool_], step: int) -> NDArray[np.float64]:
    """Sets all ticks that are not good between their good neighbours.

    Args:
        ticks: int64 (N,), in display order.
        good: bool (N,), which of them rise; one at least does.
        step: ticks from one frame to the next where the good ones do not tell.

    Returns:
        float64 (N,), rising strictly.
    """
    steps = np.diff(np.flatnonzero(good)), np.diff(ticks[good])
    usual = float(np.median(steps[1] / steps[0])) if len(steps[0]) else float(step)
    good = _choose_of_doubles(ticks, good, usual)
    times = ticks.astype(np.float64)
    places = np.concatenate([[-1], np.flatnonzero(good), [len(ticks)]])
    for gap in np.flatnonzero(np.diff(places) > 1):
        left, right = int(places[gap]), int(places[gap + 1])
        times[left + 1 : right] = _interpolate_times(ticks, left, right, usual)
    return times


def _choose_of_doubles(ticks: NDArray[np.int64], good: NDArray[np.bool_], usual: float) -> NDArray[np.bool_]:
    """Chooses of two frames with one time the second where there is room for one before, not after."""
    good = good.copy()
    for place in map(int, np.flatnonzero(~good)):
        if place == 0 or not good[place - 1] or ticks[place] != ticks[place - 1]:
            continue
        room_before = ticks[place] - ticks[place - 2] if place > 1 and good[place - 2] else 0
        follows = place + 1 < len(ticks) and good[place + 1]
        room_behind = ticks[place + 1] - ticks[place] if follows else 2 * usual
        if room_behind < 1.5 * usual <= room_before:
            good[place - 1], good[place] = False, True
    return good


def _interpolate_times(ticks: NDArray[np.int64], left: int, right: int, usual: float) -> NDArray[np.float64]:
    """Finds times for the frames after the good place ``left`` and before the good place ``right``.

    They follow the one before by the usual step, or where they claim to be late precede the one after by it;
    where there is too little room, they share it.
    """
    count = right - left - 1
    steps = np.arange(1, count + 1)
    if left < 0:
        return np.asarray(ticks[right] - usual * steps[::-1], np.float64)
    if right == len(ticks):
        return np.asarray(ticks[left] + usual * steps, np.float64)
    room = float(ticks[right] - ticks[left])
    step = min(usual, room / (count + 1))
    if ticks[left + 1] >= ticks[right]:
        return np.asarray(ticks[right] - step * steps[::-1], np.float64)
    return np.asarray(ticks[left] + step * steps, np.float64)
