"""Reads a caption of parts of its video with a pretrained captioner, which is shown frames.

A video that is one moment alone has that moment's frames, as often as a model with a fixed number of frames
needs them. A frame that is one place alone is grey everywhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from extractors.features import View
from models.captioner import Array
from models.evidence.reader import VideoPart
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.words import TokenWords

#: Of what is left out: the middle between black and white, which is nearly 0 to an image encoder.
GREY = 127


@dataclass(frozen=True, eq=False)
class FrameReader:
    """Reads with a pretrained captioner.

    Attributes:
        chosen: The frames that it was shown.
        words: The caption's words and their tokens.
        score: Computes for each of several videos the log-probability of each of the caption's tokens.
        frames_each: Frames that make one moment of the model.
        has_fixed_length: Whether it takes videos of one number of frames alone.
    """

    chosen: ChosenFrames
    words: TokenWords
    score: Callable[[Sequence[ChosenFrames]], list[list[float]]]
    frames_each: int
    has_fixed_length: bool

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Reads as ``CaptionReader`` says."""
        logprobs = self.score([self._show(part) for part in parts])
        return np.where(words, [self.words.summed(of_part) for of_part in logprobs], 0.0)

    def _show(self, part: VideoPart) -> ChosenFrames:
        """Takes the frames of one moment, one group of them where the model takes any number."""
        _, moment_of_group = self.chosen.moments(self.frames_each)
        first = int(np.flatnonzero(moment_of_group == part.moment)[0]) * self.frames_each
        group = np.arange(first, first + self.frames_each)
        if self.has_fixed_length:
            group = np.tile(group, len(self.chosen) // self.frames_each)
        shown = replace(self.chosen, pixels=self.chosen.pixels[group], starts=self.chosen.starts[group])
        return shown if part.place is None else _keep_place(shown, part.place, part.is_hidden)


def _keep_place(frames: ChosenFrames, place: View, is_hidden: bool = False) -> ChosenFrames:
    """Greys out what lies outside of a place, or in it where it is the place that is hidden."""
    height, width = frames.size
    x0, y0, x1, y1 = frames.view
    left, right = (round((x - x0) / (x1 - x0) * width) for x in place[::2])
    top, bottom = (round((y - y0) / (y1 - y0) * height) for y in place[1::2])
    pixels = frames.pixels.copy() if is_hidden else np.full_like(frames.pixels, GREY)
    inside = np.s_[:, top:bottom, left:right]
    pixels[inside] = GREY if is_hidden else frames.pixels[inside]
    return replace(frames, pixels=pixels)
