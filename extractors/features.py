"""Defines the values that travel from a video file to a captioner.

All streams of a video share one clock: seconds from the first shown frame. That is how a
captioner aligns a motion stream with a picture stream, and how a reader reads its attention.

The size in which an extractor is handed frames is data that needs no torch: the decoder makes each frame as
small as the extractor makes it anyway, by Pillow as the extractor itself does on a CPU. Preparing such a
frame gives the very bytes that the stored one gives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from extractors.windows import Sampling

if TYPE_CHECKING:
    from torch import Tensor

Filter = Literal["bilinear", "bicubic"]
PILLOW: Mapping[Filter, Image.Resampling] = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}


@dataclass(frozen=True)
class Resizing:
    """Declares an extractor's resizing of whole pictures; resizing twice is resizing once."""

    #: pixels of the shorter side, the aspect ratio kept; or (rows, columns), into which the whole is squashed
    target: int | tuple[int, int]
    #: a limit of the longer side, as detectors have it: sizes are then rounded and not cut to whole numbers
    longest: int | None = None
    filter: Filter = "bilinear"

    def size(self, height: int, width: int) -> tuple[int, int]:
        """Computes (rows, columns) of a picture of that size once it is resized."""
        if isinstance(self.target, tuple):
            return self.target
        if self.longest is not None:
            return fit_between(height, width, self.target, self.longest)
        return scale_short_side(height, width, self.target)

    def shrink(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resizes frames uint8 (T, H, W, 3); leaves frames that are already as small as they are."""
        rows, columns = self.size(*pixels.shape[1:3])
        if rows * columns >= pixels.shape[1] * pixels.shape[2]:
            return pixels
        pictures = (Image.fromarray(picture) for picture in pixels)
        return np.stack(
            [np.asarray(picture.resize((columns, rows), PILLOW[self.filter])) for picture in pictures]
        )


@dataclass(frozen=True)
class FrameSize:
    """A size of frames by how they are made."""

    #: pixels of the shorter edge to which the decoder shrinks larger frames, None for frames as stored
    short_side: int | None = None
    #: what the extractor does to whole frames first, None where it does nothing or frames that the decoder
    #: made smaller are small enough
    resizing: Resizing | None = None

    def shrink(self, pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Makes frames uint8 (T, H, W, 3), shrunk to ``short_side`` by the decoder, as small as may be."""
        return pixels if self.resizing is None else self.resizing.shrink(pixels)


def scale_short_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Scales a size so that its shorter edge is as wished, keeping the aspect ratio.

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
    """Scales a size so that its shorter edge is as wished, unless the longer would be too long.

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


#: x0 y0 x1 y1 in [0, 1] of the displayed frame.
View: TypeAlias = tuple[float, float, float, float]
WHOLE: View = (0.0, 0.0, 1.0, 1.0)


def place_within(outer: View, inner: View) -> View:
    """Places a part of a part in the frame: ``inner`` is in [0, 1] of ``outer``."""
    left, top, right, bottom = outer
    width, height = right - left, bottom - top
    return left + width * inner[0], top + height * inner[1], left + width * inner[2], top + height * inner[3]


@dataclass(frozen=True, eq=False)
class Frames:
    """Decoded pictures, as displayed (rotation and pixel aspect applied)."""

    pixels: NDArray[np.uint8]  #: uint8 (T, H, W, 3), RGB
    #: float64 (T,), presentation times in seconds from the first shown frame, rising.
    pts: NDArray[np.float64]
    duration: float  #: seconds of the whole video, where the last row of a stream ends
    #: Frames a second of the whole video on average, None where these are all its frames.
    fps: float | None = None
    #: The part of the displayed frames that the pixels are, where bars were left out.
    view: View = field(default=WHOLE, kw_only=True)

    @classmethod
    def of_picture(cls, pixels: NDArray[np.uint8]) -> Self:
        """Makes a video of one picture, uint8 (H, W, 3), a second long."""
        return cls(pixels[None], np.zeros(1), 1.0, 1.0)

    @property
    def rate(self) -> float:
        """Frames a second of the whole video, on average."""
        return self.fps or len(self) / self.duration

    def __len__(self) -> int:
        return len(self.pts)


@dataclass(frozen=True)
class StreamSpec:
    """The name tag of a stream: what made these numbers.

    ``network``, ``weights_sha256`` and ``preprocessing`` decide what the numbers mean, so a
    captioner refuses a stream that differs in them. ``sampling``, ``engine`` and ``precision``
    are recorded, and may differ.
    """

    network: str
    weights_sha256: str
    preprocessing: str
    sampling: str = ""
    engine: str = ""
    precision: str = ""

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits that two interchangeable streams share."""
        text = "\n".join((self.network, self.weights_sha256, self.preprocessing))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Stream:
    """One extractor's rows over time."""

    values: Tensor  #: float16/32 (T, C) or (T, N, C) with N grid cells (row by row) or boxes
    start: NDArray[np.float64]  #: float64 (T,), seconds at which what each row covers begins
    end: NDArray[np.float64]  #: float64 (T,), seconds at which it ends
    spec: StreamSpec
    #: float32 (T, N, 4), x0 y0 x1 y1 in [0, 1] of the displayed frame, or None for a grid.
    boxes: Tensor | None = None
    #: bool (T,) or (T, N), False where a row or box is padding, or None where all are real.
    mask: Tensor | None = None
    #: The part of the frame that a grid covers: networks that cut out the middle see no more.
    view: View = WHOLE

    def __len__(self) -> int:
        return len(self.start)

    def placed_within(self, view: View) -> Stream:
        """Returns the stream of frames that are a part of the displayed ones, placed in these."""
        left, top, right, bottom = view
        boxes = self.boxes
        if boxes is not None:
            sides = boxes.new_tensor([right - left, bottom - top] * 2)
            boxes = boxes * sides + boxes.new_tensor([left, top] * 2)
        return replace(self, boxes=boxes, view=place_within(view, self.view))


Features: TypeAlias = Mapping[str, Stream]


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono sound on the video's clock: sample 0 belongs to the first shown frame."""

    samples: NDArray[np.float32]  #: float32 (N,), in [-1, 1]
    rate: int  #: samples a second


@dataclass(frozen=True, eq=False)
class Footage(Frames):
    """Frames with the sound that goes with them; None where there is none, or none was asked for."""

    sound: Audio | None = None
    #: the frames uint8 (T, H, W, 3) in the sizes that were asked for beside that of ``pixels``
    sized: Mapping[FrameSize, NDArray[np.uint8]] = field(default_factory=dict)
    shown: Sampling | None = None  #: which of the frames a visitor is shown, None for all

    @property
    def shown_frames(self) -> Frames:
        """The frames that a visitor is shown: those that are spread over the time, without those between."""
        places = slice(None) if self.shown is None else self.shown.choose(self.pts, self.duration)
        return Frames(self.pixels[places], self.pts[places], self.duration, self.fps)

    def at(self, size: FrameSize) -> Frames:
        """Returns the frames in an extractor's size, where they were decoded for several."""
        pixels = self.sized.get(size, self.pixels)
        return Frames(pixels, self.pts, self.duration, self.fps, view=self.view)

    def take(self, places: NDArray[np.int64]) -> Footage:
        """Returns some of the frames, in every size."""
        sized = {size: pixels[places] for size, pixels in self.sized.items()}
        return replace(self, pixels=self.pixels[places], pts=self.pts[places], sized=sized)
