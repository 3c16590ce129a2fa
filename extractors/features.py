"""Defines the values that travel from a video file to a captioner.

All streams of a video share one clock: seconds from the first shown frame. That is how a
captioner aligns a motion stream with a picture stream, and how a reader reads its attention.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.frame_size import FrameSize
from extractors.windows import Sampling

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Frames:
    """Decoded pictures, as displayed (rotation and pixel aspect applied).

    pixels: uint8 (T, H, W, 3), RGB.
    pts: float64 (T,), presentation times in seconds from the first shown frame, rising.
    duration: seconds of the whole video, where the last row of a stream ends.
    fps: frames a second of the whole video on average, None where these are all its frames.
    """

    pixels: NDArray[np.uint8]
    pts: NDArray[np.float64]
    duration: float
    fps: float | None = None

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


#: x0 y0 x1 y1 in [0, 1] of the displayed frame.
View: TypeAlias = tuple[float, float, float, float]
WHOLE: View = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True, eq=False)
class Stream:
    """One extractor's rows over time.

    values: float16/32 (T, C) or (T, N, C) with N grid cells (row by row) or boxes.
    start, end: float64 (T,), seconds each row covers.
    boxes: float32 (T, N, 4), x0 y0 x1 y1 in [0, 1] of the displayed frame, or None for a grid.
    mask: bool (T,) or (T, N), False where a row or box is padding, or None where all are real.
    view: the part of the frame that a grid covers: networks that cut out the middle see no more.
    """

    values: Tensor
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    spec: StreamSpec
    boxes: Tensor | None = None
    mask: Tensor | None = None
    view: View = WHOLE

    def __len__(self) -> int:
        return len(self.start)


Features: TypeAlias = Mapping[str, Stream]


@dataclass(frozen=True, eq=False)
class Audio:
    """Mono sound on the video's clock: sample 0 belongs to the first shown frame.

    samples: float32 (N,), in [-1, 1]. rate: samples a second.
    """

    samples: NDArray[np.float32]
    rate: int


@dataclass(frozen=True, eq=False)
class Footage(Frames):
    """Frames with the sound that goes with them; None where there is none, or none was asked for.

    sized: the frames uint8 (T, H, W, 3) in the sizes that were asked for beside that of ``pixels``.
    shown: which of the frames a visitor is shown, None for all.
    """

    sound: Audio | None = None
    sized: Mapping[FrameSize, NDArray[np.uint8]] = field(default_factory=dict)
    shown: Sampling | None = None

    @property
    def shown_frames(self) -> Frames:
        """The frames that a visitor is shown: those that are spread over the time, without those between."""
        places = slice(None) if self.shown is None else self.shown.choose(self.pts, self.duration)
        return Frames(self.pixels[places], self.pts[places], self.duration, self.fps)

    def at(self, size: FrameSize) -> Frames:
        """The frames in an extractor's size, where they were decoded for several."""
        return Frames(self.sized.get(size, self.pixels), self.pts, self.duration, self.fps)

    def take(self, places: NDArray[np.int64]) -> Footage:
        """Some of the frames, in every size."""
        sized = {size: pixels[places] for size, pixels in self.sized.items()}
        return replace(self, pixels=self.pixels[places], pts=self.pts[places], sized=sized)
