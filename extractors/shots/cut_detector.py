"""Finds hard cuts frame by frame: PySceneDetect's adaptive detector on small pictures.

Its score is the mean change of hue, saturation and brightness from one frame to the next, and a cut is where
that is three times the mean of its neighbours' and large by itself, so that a moving camera is no cut. Two
things are kept from it that would look like cuts: the hue of what is nearly black, which is noise, and frames
that repeat the one before, beside which any movement is large: films drawn or recorded at few frames a second
are stored so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from scenedetect import FrameTimecode
from scenedetect.detectors import AdaptiveDetector

SIDE = 48  #: pixels of the shorter edge: noise and small movements are averaged away
RATIO = 3.0  #: a cut's change over the mean of its neighbours'
LEAST_CHANGE = 15.0  #: of 255: below it nothing is a cut
NEIGHBOURS = 2  #: on either side; a frame is judged that many frames later
BLACK = 24  #: of 255: what is darker is taken for this grey
SAME = 0.5  #: of 255, the mean difference up to which a frame repeats the one before
REPEATS = 5  #: in a row, that are passed over; a still picture lasts longer
CLOCK = 25.0  #: the detector counts frames; their times are ours


@dataclass(frozen=True, eq=False)
class JudgedFrame:
    """pixels: uint8 (H, W, 3), RGB. time: seconds of the film. is_cut: whether a shot begins with it."""

    time: float
    pixels: NDArray[np.uint8]
    is_cut: bool


class CutDetector:
    """Judges frames in their order; holds those that are not judged yet, a dozen or so at most."""

    def __init__(self) -> None:
        self._detector = AdaptiveDetector(
            adaptive_threshold=RATIO,
            min_scene_len=0,  # counted in frames; the segmenter knows their times and passes cuts over itself
            window_width=NEIGHBOURS,
            min_content_val=LEAST_CHANGE,
        )
        self._waiting: deque[_Waiting] = deque()
        self._last: NDArray[np.uint8] | None = None
        self._count = self._repeats = 0

    def push(self, time: float, pixels: NDArray[np.uint8]) -> Iterator[JudgedFrame]:
        """Takes the next frame, and gives those that are judged by now.

        Args:
            time: seconds of the film.
            pixels: uint8 (H, W, 3), RGB; not changed as long as the frame waits.
        """
        small = _small(pixels)
        number = None if self._repeats_last(small) else self._count
        # repeats wait with the others, else they would be handed over before what was shown earlier
        self._waiting.append(_Waiting(number, time, pixels))
        if number is None:
            return
        cuts = self._cuts(number, small)
        self._last, self._count = small, number + 1
        while self._waiting[0].number is None or self._waiting[0].number <= number - NEIGHBOURS:
            each = self._waiting.popleft()
            yield JudgedFrame(each.time, each.pixels, each.number in cuts)

    def finish(self) -> Iterator[JudgedFrame]:
        """Yields the last frames: too few follow them to tell a cut."""
        while self._waiting:
            each = self._waiting.popleft()
            yield JudgedFrame(each.time, each.pixels, is_cut=False)

    def _repeats_last(self, small: NDArray[np.uint8]) -> bool:
        is_same = self._last is not None and cv2.norm(small, self._last, cv2.NORM_L1) <= SAME * small.size
        self._repeats = self._repeats + 1 if is_same and self._repeats < REPEATS else 0
        return self._repeats > 0

    def _cuts(self, number: int, small: NDArray[np.uint8]) -> set[int | None]:
        """Numbers of the frames that turn out to begin a shot now that this one is known."""
        return {cut.frame_num for cut in self._detector.process_frame(FrameTimecode(number, CLOCK), small)}


@dataclass(frozen=True, eq=False)
class _Waiting:
    """number: as the detector counts, None where the frame repeats the one before and is not shown to it."""

    number: int | None
    time: float
    pixels: NDArray[np.uint8]


def _small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Returns the picture in blue, green and red, as the detector has it."""
    height, width = pixels.shape[:2]
    scale = min(1.0, SIDE / min(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return np.maximum(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), np.uint8(BLACK))
