"""The size in which an extractor is handed frames, as data that needs no torch.

The decoder makes each frame as small as the extractor makes it anyway, by Pillow as the extractor itself does
on a CPU: preparing such a frame gives the very bytes that the stored one gives.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Filter = Literal["bilinear", "bicubic"]
PILLOW: Mapping[Filter, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


@dataclass(frozen=True)
class Resizing:
    """Declares an extractor's resizing of whole pictures; resizing twice is resizing once.

    target: pixels of the shorter side, the aspect ratio kept; or (rows, columns), into which the whole is
    squashed. longest: a limit of the longer side, as detectors have it: sizes are then rounded and not cut to
    whole numbers.
    """

    target: int | tuple[int, int]
    longest: int | None = None
    filter: Filter = "bilinear"

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Compute (rows, columns) of a picture of that size once it is resized."""
        if isinstance(self.target, tuple):
            return self.target
        if self.longest is not None:
            return fit_between(height, width, self.target, self.longest)
        return scale_short_side(height, width, self.target)

    def shrink(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize frames uint8 (T, H, W, 3); leave them as they are where that would only make them larger."""
        rows, columns = self.size(*pixels.shape[1:3])
        if rows * columns >= pixels.shape[1] * pixels.shape[2]:
            return pixels
        pictures = (Image.fromarray(picture) for picture in pixels)
        return np.stack(
            [np.asarray(picture.resize((columns, rows), PILLOW[self.filter])) for picture in pictures]
        )


@dataclass(frozen=True)
class FrameSize:
    """A size of frames by how they are made.

    short_side: pixels of the shorter edge to which the decoder shrinks larger frames, None for frames as
    stored. resizing: what the extractor does to whole frames first, None where it does nothing or frames that
    the decoder made smaller are small enough.
    """

    short_side: int | None = None
    resizing: Resizing | None = None

    def shrink(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Make frames uint8 (T, H, W, 3), shrunk to ``short_side`` by the decoder, as small as may be."""
        return pixels if self.resizing is None else self.resizing.shrink(pixels)


def scale_short_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Scale a size so that its shorter edge is as wished, keeping the aspect ratio.

    Args:
        height: pixels.
        width: pixels.
        side: pixels of the shorter edge afterwards.

    Returns:
        (rows, columns), the longer one cut to a whole number.
    """
    short, long = min(height, width), max(height, width)
    longer = int(side * long / short)
    return (longer, side) if height > width else (side, longer)


def fit_between(height: int, width: int, shortest: int, longest: int) -> tuple[int, int]:
    """Scale a size so that its shorter edge is as wished, unless the longer would be too long.

    Args:
        height: pixels.
        width: pixels.
        shortest: pixels of the shorter edge afterwards.
        longest: pixels of the longer edge at most, which then decides.

    Returns:
        (rows, columns), rounded.
    """
    scale = shortest / min(height, width)
    new_height, new_width = (shortest, scale * width) if height < width else (scale * height, shortest)
    if max(new_height, new_width) > longest:
        shrink = longest / max(new_height, new_width)
        new_height, new_width = new_height * shrink, new_width * shrink
    return int(new_height + 0.5), int(new_width + 0.5)
