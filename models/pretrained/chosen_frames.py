"""Chooses of a video's frames those that a pretrained model is shown, and maps its moments back to them."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from extractors.features import WHOLE, Frames, View
from extractors.windows import Sampling, find_shown_frames


@dataclass(frozen=True, eq=False)
class ChosenFrames:
    """As many frames as a model wants; where the video is short, some of them twice.

    pixels: uint8 (T, H, W, 3). starts: float64 (T,), seconds at which each frame is first on screen, never
    falling. duration: seconds of the video. view: the part of the displayed frames that the pixels are.
    """

    pixels: NDArray[np.uint8]
    starts: NDArray[np.float64]
    duration: float
    view: View = WHOLE

    @classmethod
    def of(cls, video: Frames, sampling: Sampling, multiple: int = 1) -> Self:
        """Takes the frames that are on screen at the instants of ``sampling``.

        Args:
            video: Decoded by the captioner's request, or by one that gives more.
            sampling: The captioner's.
            multiple: The model takes frames in groups of so many; the last frame fills the last group up.

        Returns:
            The frames, a multiple of ``multiple``.
        """
        places = find_shown_frames(video.pts, sampling.instants(video.duration))
        lacking = -len(places) % multiple
        places = np.concatenate([places, np.repeat(places[-1:], lacking)])
        return cls(video.pixels[places], video.pts[places], video.duration, video.view)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def size(self) -> tuple[int, int]:
        """(height, width) of a frame."""
        return int(self.pixels.shape[1]), int(self.pixels.shape[2])

    def moments(self, frames_each: int = 1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns the times that the model's moments stand for, of ``frames_each`` frames each.

        They are (M, 2), seconds, each moment's begin and end, the next one's begin; and for each of the
        model's T / ``frames_each`` moments its place among them: one for all that show the same frame.
        """
        begins, index = np.unique(self.starts[::frames_each], return_inverse=True)
        ends = np.concatenate([begins[1:], [max(self.duration, float(begins[-1]))]])
        return np.stack([begins, ends], 1), index.astype(np.int64)
