"""Reads a caption of parts of its video with a pretrained captioner, which is shown frames.

A video that is one moment alone has that moment's frames, as often as a model with a fixed number of frames
needs them. A frame that is one place alone is grey everywhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from extractors.features import View
from models.captioner import Array
from models.pretrained.chosen_frames import ChosenFrames
from models.pretrained.words import split_words

if TYPE_CHECKING:
    from models.pretrained.captioner import PretrainedCaptioner


#: Of what is left out: the middle between black and white, which is nearly 0 to an image encoder.
GREY = 127


@dataclass(frozen=True, eq=False)
class FrameReader:
    """Reads as ``models.evidence.reader.CaptionReader`` says, all parts of the video in one batch.

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

    def read_moments(self, moments: Sequence[int]) -> Array:
        """Computes (M, L) log-probabilities of the words where the video is each of M moments alone."""
        return self._read([self._restrict(moment) for moment in moments])

    def read_places(self, places: Sequence[tuple[int, View]]) -> Array:
        """Computes (P, L) of the words where the video is one place of one moment alone.

        places: moments, and in each x0 y0 x1 y1 in [0, 1] of the picture.
        """
        return self._read([keep_place(self._restrict(moment), place) for moment, place in places])

    def _restrict(self, moment: int) -> ChosenFrames:
        """Takes the frames of one moment, one group of them where the model takes any number."""
        _, moment_of_group = self.chosen.moments(self.frames_each)
        first = int(np.flatnonzero(moment_of_group == moment)[0]) * self.frames_each
        group = np.arange(first, first + self.frames_each)
        if self.captioner.has_fixed_length:
            group = np.tile(group, len(self.chosen) // self.frames_each)
        return replace(self.chosen, pixels=self.chosen.pixels[group], starts=self.chosen.starts[group])

    def _read(self, videos: Sequence[ChosenFrames]) -> Array:
        logprobs = self.captioner.score_tokens(videos, self.tokens, self.prompt)
        ended = self.tokens[-1:] and self.tokens[-1] in self.captioner.tokens.ends
        words = split_words(self.captioner.tokenizer, self.tokens[:-1] if ended else self.tokens)
        return np.array([words.summed(of_video) for of_video in logprobs])


def keep_place(frames: ChosenFrames, place: View) -> ChosenFrames:
    """Greys out what lies outside of a place, x0 y0 x1 y1 in [0, 1] of the picture."""
    height, width = frames.size
    left, right = round(place[0] * width), round(place[2] * width)
    top, bottom = round(place[1] * height), round(place[3] * height)
    pixels = np.full_like(frames.pixels, GREY)
    pixels[:, top:bottom, left:right] = frames.pixels[:, top:bottom, left:right]
    return replace(frames, pixels=pixels)
