"""What part of a picture a network sees, and how large: the data that both does it and says it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from extractors.features import WHOLE, View
from extractors.frame_size import Filter, Resizing
from extractors.preprocess import resized


@dataclass(frozen=True)
class Framing:
    """The picture resized, then the middle square of ``crop`` pixels (None: all of it).

    size: of the shorter side, the aspect ratio kept; or (rows, columns), into which the whole is squashed.
    filter: of the resizing. rounding: where the square begins when the rest is odd: "down" takes the smaller
    part before it, as numpy code does with //; "even" rounds the half to even, as torchvision does.
    """

    size: int | tuple[int, int]
    crop: int | None
    filter: Filter = "bilinear"
    rounding: str = "down"

    def __post_init__(self) -> None:
        if self.rounding not in ("down", "even"):
            raise ValueError(f"rounding is 'down' or 'even', not {self.rounding!r}")

    @property
    def resizing(self) -> Resizing:
        """What is done to whole pictures, before anything is cut out."""
        return Resizing(self.size, filter=self.filter)

    def __call__(self, frames: Tensor) -> Tensor:
        """Frames uint8 (T, H, W, 3) to (T, h, w, 3); on a CPU Pillow's very bytes."""
        frames = resized(frames, *self.resizing.size(frames.shape[1], frames.shape[2]), self.filter)
        if self.crop is None:
            return frames
        for axis in (1, 2):
            frames = frames.narrow(axis, self._begin(frames.shape[axis] - self.crop), self.crop)
        return frames

    def view(self, height: int, width: int) -> View:
        """The part that is left of frames of that size."""
        if self.crop is None:
            return WHOLE
        rows, columns = self.resizing.size(height, width)
        top, left = self._begin(rows - self.crop), self._begin(columns - self.crop)
        return left / columns, top / rows, (left + self.crop) / columns, (top + self.crop) / rows

    def _begin(self, rest: int) -> int:
        return rest // 2 if self.rounding == "down" else round(rest / 2)

    def __str__(self) -> str:
        if isinstance(self.size, int):
            size = f"short side {self.size}"
        else:
            size = f"squashed to {self.size[1]}x{self.size[0]}"
        text = f"{size}, antialiased {self.filter}, 8 bits"
        if self.crop is None:
            return text
        rest = "" if self.rounding == "down" else ", half of an odd rest rounded to even"
        return f"{text}; middle {self.crop}x{self.crop}{rest}"
