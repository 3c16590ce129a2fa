"""Finds hard cuts frame by frame: PySceneDetect's adaptive detector on small pictures.

Its score is the mean change of hue, saturation and brightness from one frame to the next, and a cut is where
that is three times the mean of its neighbours' and large by itself, so that a moving camera is no cut.
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
CLOCK = 25.0  #: the detector counts frames; their times are ours


@dataclass(frozen=True, eq=False)
class JudgedFrame:
    """pixels: uint8 (H, W, 3), RGB. time: seconds of the film. is_cut: whether a shot begins with it."""

    time: float
    pixels: NDArray[np.uint8]
    is_cut: bool


class CutDetector:
    """Judges frames in their order; holds those that are not judged yet, ``NEIGHBOURS`` at most."""

    def __init__(self) -> None:
        self._detector = AdaptiveDetector(
            adaptive_threshold=RATIO, min_scene_len=0, window_width=NEIGHBOURS, min_content_val=LEAST_CHANGE
        )
        self._waiting: deque[tuple[int, float, NDArray[np.uint8]]] = deque()
        self._count = 0

    def push(self, time: float, pixels: NDArray[np.uint8]) -> Iterator[JudgedFrame]:
        """Take the next frame, and give those that are judged by now.

        Args:
            time: seconds of the film.
            pixels: uint8 (H, W, 3), RGB; not changed as long as the frame waits.
        """
        found = self._detector.process_frame(FrameTimecode(self._count, CLOCK), _small(pixels))
        cuts = {timecode.frame_num for timecode in found}
        self._waiting.append((self._count, time, pixels))
        self._count += 1
        if len(self._waiting) > NEIGHBOURS:
            number, at, picture = self._waiting.popleft()
            yield JudgedFrame(at, picture, number in cuts)

    def finish(self) -> Iterator[JudgedFrame]:
        """The last frames: too few follow them to tell a cut."""
        while self._waiting:
            _, time, pixels = self._waiting.popleft()
            yield JudgedFrame(time, pixels, is_cut=False)


def _small(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The picture in blue, green and red, as the detector has it."""
    height, width = pixels.shape[:2]
    scale = min(1.0, SIDE / min(height, width))
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(pixels, size, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.cvtColor(small, cv2.COLOR_RGB2BGR), np.uint8)
