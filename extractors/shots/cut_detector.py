"""Finds cuts frame by frame on small pictures.

A picture's score is the mean change of hue, saturation and brightness since the one before, over the part of
the picture that lives. A cut is where that is three times the mean of its neighbours' and large by itself, so
that a moving camera is no cut: the rule of PySceneDetect's adaptive detector. Here, time enters it. Frames
that repeat the one before are passed over, since beside them any movement is large (films drawn or recorded
at few frames a second are stored so), and a picture that stands for long has rests for neighbours, in which
nothing changes, whether it is stored once or fifty times. A flash is no cut; the end of a fade is one.
"""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from extractors.shots.live_part import LivePart, LivingArea, Pixels

SIDE = 48  #: pixels of the shorter edge: noise and small movements are averaged away
RATIO = 3.0  #: a cut's change over the mean of its neighbours'
LEAST_CHANGE = 15.0  #: of 255: below it nothing is a cut
LEAST_OF_STILLS = 7.5  #: of 255: the same between pictures that stand, such as slides of text
NEIGHBOURS = 2  #: on either side; a picture is judged that many later
BLACK = 24  #: of 255: what is darker is taken for this grey: its hue is noise
GREY = 16  #: of 255: what is less saturated is taken for grey
SAME = 0.5  #: of 255, the mean difference up to which a frame repeats the one before
REST = 0.23  #: seconds that a picture stands for each rest; at 25 frames a second the sixth repeat
STAND = 1.2  #: seconds from which no more is asked; a frame a second may be a film that moves
ALIKE = 0.4  #: correlation of brightness above which two pictures may be of one movement
FLASH = 0.25  #: seconds that a flash lasts at most
#: Of 255, the standard deviation of a picture of one colour, and of one with something in it.
PLAIN, FULL = 2.0, 8.0
FADE = 2.0  #: seconds between these two at most


@dataclass(frozen=True, eq=False)
class JudgedFrame:
    """Holds a frame that was shown."""

    time: float  #: seconds of the film
    pixels: NDArray[np.uint8]  #: uint8 (H, W, 3), RGB
    is_cut: bool  #: whether a shot begins with it


@dataclass(frozen=True, eq=False)
class _Waiting:
    """number: of the picture that begins with this frame, None where the frame repeats the one before."""

    number: int | None
    time: float
    pixels: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class _Shown:
    """A picture, or a rest in which it stands.

    number: None of a rest. hsv, change: uint8 (h, w, 3), the picture and how it differs from the one before,
    None of a rest. stood: seconds that the one before was shown. ends_fade: whether one has just ended.
    """

    number: int | None
    time: float
    hsv: Pixels
    change: Pixels | None = None
    stood: float = 0.0
    ends_fade: bool = False

    @property
    def whole(self) -> float:
        """Returns the mean change of the whole picture."""
        return 0.0 if self.change is None else sum(cv2.mean(self.change))


class CutDetector:
    """Judges frames in their order; holds those that are not judged yet, a dozen or so at most."""

    def __init__(self) -> None:
        self._waiting: deque[_Waiting] = deque()
        #: NEIGHBOURS behind the one that is judged, and one more before it, which a flash may hide
        self._window: deque[_Shown] = deque(maxlen=2 * NEIGHBOURS + 2)
        self._moves: deque[_Shown] = deque(maxlen=2 * NEIGHBOURS + 1)  #: the same without rests
        self._live = LivePart()
        self._last: NDArray[np.uint8] | None = None
        self._rested = 0.0  #: when the last picture or rest began
        self._plain = -FADE  #: when a picture of one colour was shown last

    def push(self, time: float, pixels: NDArray[np.uint8]) -> Iterator[JudgedFrame]:
        """Takes the next frame, and gives those that are judged by now.

        time: seconds of the film. pixels: uint8 (H, W, 3), RGB; not changed as long as the frame waits.
        """
        yield from self._rest_until(time)
        small = _small(pixels)
        if self._last is not None and cv2.norm(small, self._last, cv2.NORM_L1) <= SAME * small.size:
            # repeats wait with the others, else they would be handed over before what was shown earlier
            self._waiting.append(_Waiting(None, time, pixels))
            return
        shown = self._shown(time, small)
        self._waiting.append(_Waiting(shown.number, time, pixels))
        self._last, self._rested = small, time
        self._moves.append(shown)
        yield from self._add(shown)

    def finish(self, duration: float) -> Iterator[JudgedFrame]:
        """Yields the last frames of a film of so many seconds: where too few follow them, no cut is told."""
        yield from self._rest_until(duration)
        while self._waiting:
            each = self._waiting.popleft()
            yield JudgedFrame(each.time, each.pixels, is_cut=False)

    def _rest_until(self, time: float) -> Iterator[JudgedFrame]:
        """Adds the rests of the last picture; more than are looked at would change nothing."""
        rests = int((time - self._rested) / REST) if self._window else 0
        if rests:
            self._rested = time
        for _ in range(min(rests, 2 * NEIGHBOURS)):
            yield from self._add(_Shown(None, time, self._window[-1].hsv))

    def _shown(self, time: float, small: Pixels) -> _Shown:
        hsv = _hsv(small)
        if self._last is None:
            return _Shown(0, time, hsv)
        before = self._moves[-1]
        change = cv2.absdiff(hsv, before.hsv)
        self._live.add(cv2.absdiff(small, self._last))
        number, ends_fade = 1 + (before.number or 0), self._ends_fade(time, small, change)
        return _Shown(number, time, hsv, change, time - before.time, ends_fade)

    def _ends_fade(self, time: float, small: Pixels, change: Pixels) -> bool:
        """Tells whether the picture shows something again after a fade to one colour."""
        spread = float(cv2.meanStdDev(small)[1].max())
        ends = spread >= FULL and time - self._plain <= FADE
        if ends or (spread <= PLAIN and cv2.mean(change)[2] < LEAST_CHANGE):
            self._plain = -FADE if ends else time
        return ends

    def _add(self, shown: _Shown) -> Iterator[JudgedFrame]:
        """Takes in what is shown next, and gives the frames of what has NEIGHBOURS behind it by now."""
        self._window.append(shown)
        if len(self._window) <= NEIGHBOURS:
            return
        judged = self._window[-1 - NEIGHBOURS]
        is_cut = self._is_cut()
        while self._waiting and self._waiting[0].number in (None, judged.number):
            each = self._waiting.popleft()
            yield JudgedFrame(each.time, each.pixels, is_cut and each.number is not None)

    def _is_cut(self) -> bool:
        """Tells whether a shot begins with the picture that has NEIGHBOURS behind it."""
        *before, shown = list(self._window)[:-NEIGHBOURS]
        if shown.ends_fade or len(before) < NEIGHBOURS or shown.change is None:
            return shown.ends_fade
        after = list(self._window)[-NEIGHBOURS:]
        around = (*before[-NEIGHBOURS:], *after)
        if shown.whole < np.mean([each.whole for each in around]):
            return False  # whatever the part: most pictures of a film that moves end here
        stands = shown.stood >= STAND and all(each.change is None for each in around)
        part = self._live.find(before[-1].hsv, shown.hsv)
        score = part.score(shown.change)
        if score < (LEAST_OF_STILLS if stands else LEAST_CHANGE):
            return False
        if score < RATIO * np.mean([part.score(each.change) for each in around]):
            return False
        is_flash = self._is_flash(before, [shown, *after], part, score / RATIO)
        return not is_flash and not self._goes_on(shown, part, score)

    def _is_flash(self, before: list[_Shown], after: list[_Shown], part: LivingArea, most: float) -> bool:
        """Tells whether what was shown is shown again within a moment, differing by ``most`` at most."""
        times = [each.time for each in (*before, *after)]
        for back, early in enumerate(reversed(before)):
            began = times[len(before) - back]
            for late in after:
                near = (early, late) != (before[-1], after[0]) and late.time - began <= FLASH
                if near and part.score(cv2.absdiff(early.hsv, late.hsv)) < most:
                    return True
        return False

    def _goes_on(self, shown: _Shown, part: LivingArea, score: float) -> bool:
        """Tells whether a picture that followed soon on one like it changes no more than those before it."""
        if not REST <= shown.stood < STAND:
            return False
        moves = list(self._moves)[: -sum(each.time >= shown.time for each in self._moves)]
        changes = [part.score(each.change) for each in moves[-NEIGHBOURS:] if each.change is not None]
        others = float(np.mean(changes)) if changes else math.inf
        return score < RATIO * others and part.correlation(moves[-1].hsv, shown.hsv) >= ALIKE


def _small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the picture with a shorter edge of SIDE, in blue, green and red."""
    height, width = pixels.shape[:2]
    scale = min(1.0, SIDE / min(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return np.maximum(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), np.uint8(BLACK))


def _hsv(small: Pixels) -> Pixels:
    hsv = cv2.cvtColor(small, cv2.COLOR_BGR2HSV)
    hsv[hsv[..., 1] < GREY, :2] = 0
    return hsv
