"""Reads a caption of parts of its video with a pretrained captioner, which is shown frames.

A video that is one moment alone has that moment's frames, as often as a model with a fixed number of frames
needs them. A frame that is one place alone is grey everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from extractors.features import View
from models.captioner import Array
from models.evidence.reader import VideoPart
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.words import split_words

if TYPE_CHECKING:
    from models.pretrained.captioner import PretrainedCaptioner


#: Of what is left out: the middle between black and white, which is nearly 0 to an image encoder.
GREY = 127


@dataclass(frozen=True, eq=False)
class FrameReader:
    """Reads with a pretrained captioner.

    Attributes:
        captioner: Who wrote the caption.
        chosen: The frames that it was shown.
        tokens: The caption's, its end included where it has one.
        prompt: What it was asked.
        frames_each: Frames that make one moment of the model.
    """

    captioner: PretrainedCaptioner[Any]
    chosen: ChosenFrames
    tokens: Sequence[int]
    prompt: str | None
    frames_each: int

    def read(self, parts: Sequence[VideoPart], words: NDArray[np.bool_]) -> Array:
        """Reads as ``CaptionReader`` says."""
        logprobs = self.captioner.score_tokens([self._show(part) for part in parts], self.tokens, self.prompt)
        ended = self.tokens[-1:] and self.tokens[-1] in self.captioner.tokens.ends
        of_words = split_words(self.captioner.tokenizer, self.tokens[:-1] if ended else self.tokens)
        return np.where(words, [of_words.summed(of_part) for of_part in logprobs], 0.0)

    def _show(self, part: VideoPart) -> ChosenFrames:
        """Takes the frames of one moment, one group of them where the model takes any number."""
        _, moment_of_group = self.chosen.moments(self.frames_each)
        first = int(np.flatnonzero(moment_of_group == part.moment)[0]) * self.frames_each
        group = np.arange(first, first + self.frames_each)
        if self.captioner.has_fixed_length:
            group = np.tile(group, len(self.chosen) // self.frames_each)
        shown = replace(self.chosen, pixels=self.chosen.pixels[group], starts=self.chosen.starts[group])
        return shown if part.place is None else keep_place(shown, part.place)


def keep_place(frames: ChosenFrames, place: View) -> ChosenFrames:
    """Greys out what lies outside of a place, x0 y0 x1 y1 in [0, 1] of the picture."""
    height, width = frames.size
    left, right = round(place[0] * width), round(place[2] * width)
    top, bottom = round(place[1] * height), round(place[3] * height)
    pixels = np.full_like(frames.pixels, GREY)
    pixels[:, top:bottom, left:right] = frames.pixels[:, top:bottom, left:right]
    return replace(frames, pixels=pixels)
