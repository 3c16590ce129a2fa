"""Finds the part of a film's frames that even bars do not cover, so that a captioner is shown it alone.

A phone's film in a wide frame, or a wide one in a tall frame, would reach networks squashed together with its
bars. Whatever may be a dark scene is left whole: bars are of one colour in all frames, on opposite sides and
about equally wide, and what they hide ends in a straight edge that nearly all of its length shows.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, Footage, Frames, View

LEAST_FRAMES = 3  #: a still may be drawn on an even ground
EVEN = 10  #: of 255: what a bar's pixels differ from its colour by, at most
SHOWN = 30  #: of 255: what the picture's pixels at an edge differ from that colour by, at least
LEAST_SHOWN = 0.6  #: of an edge, the share that differs by as much in some frame
BLUR = 0.02  #: of a side: how far an edge is blurred by scaling and compression; two pixels beside
UNEQUAL = 0.03  #: of a side: by how much opposite bars differ in width, at most
LEAST_BARS = 0.06  #: of a side: both bars together; less would change no caption
LEAST_PICTURE = 1 / 8  #: of the frame's area

AnyFrames = TypeVar("AnyFrames", bound=Frames)
Pixels = NDArray[np.uint8]


def without_bars(frames: AnyFrames) -> AnyFrames:
    """Returns frames without their bars, in every size, with ``view`` saying what is left."""
    view = find_picture(frames.pixels)
    if view == WHOLE:
        return frames
    cropped = replace(frames, pixels=_cut(frames.pixels, view), view=view)
    if isinstance(cropped, Footage):
        sized = {size: _cut(pixels, view) for size, pixels in cropped.sized.items()}
        return replace(cropped, sized=sized)
    return cropped


def find_picture(pixels: Pixels) -> View:
    """Finds the part of frames uint8 (T, H, W, 3) that is no bar; all of it where that is not certain."""
    if len(pixels) < LEAST_FRAMES:
        return WHOLE
    height, width = pixels.shape[1:3]
    rows, columns = _find_bars(pixels), _find_bars(pixels.swapaxes(1, 2))
    rows = _find_edges(pixels[:, :, slice(*columns)], rows)
    columns = _find_edges(pixels[:, slice(*rows)].swapaxes(1, 2), columns)
    (top, bottom), (left, right) = rows, columns
    if (bottom - top) * (right - left) < LEAST_PICTURE * height * width:
        return WHOLE
    return left / width, top / height, right / width, bottom / height


def _find_bars(pixels: Pixels) -> tuple[int, int]:
    """Finds the first line (axis 1) that is no bar, and one past the last; all lines without bars."""
    lines = pixels.shape[1]
    colour = np.median(pixels[:, 0].reshape(-1, 3), 0)
    before, behind = (_count_even(pixels[:, ::step], colour) for step in (1, -1))
    if before + behind < LEAST_BARS * lines or abs(before - behind) > max(2.0, UNEQUAL * lines):
        return 0, lines
    return before, lines - behind


def _count_even(pixels: Pixels, colour: NDArray[np.float64]) -> int:
    """Counts the first lines that are of one colour in all frames."""
    for line in range(pixels.shape[1]):
        if np.abs(pixels[:, line] - colour).max() > EVEN:
            return line
    return 0  # one colour alone is no bar


def _find_edges(pixels: Pixels, picture: tuple[int, int]) -> tuple[int, int]:
    """Finds where the picture between bars begins to be shown; all lines where an edge is no straight one."""
    lines, (first, end) = pixels.shape[1], picture
    if picture == (0, lines):
        return picture
    colour = np.median(pixels[:, 0].reshape(-1, 3), 0)
    near = 3 + round(BLUR * lines)
    inwards = (range(first, end)[:near], range(end - 1, first - 1, -1)[:near])
    begin, last = (next((k for k in way if _is_shown(pixels[:, k], colour)), None) for way in inwards)
    return (0, lines) if begin is None or last is None else (begin, last + 1)


def _is_shown(line: Pixels, colour: NDArray[np.float64]) -> bool:
    """Tells whether nearly all pixels of a line (T, W, 3) are no bar in some frame."""
    differs = (np.abs(line - colour).max(2) > SHOWN).any(0)
    return float(differs.mean()) >= LEAST_SHOWN


def _cut(pixels: Pixels, view: View) -> Pixels:
    height, width = pixels.shape[1:3]
    left, top, right, bottom = view
    rows = slice(round(top * height), max(round(top * height) + 1, round(bottom * height)))
    columns = slice(round(left * width), max(round(left * width) + 1, round(right * width)))
    return pixels[:, rows, columns]
