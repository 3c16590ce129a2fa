"""Videos of a grey ground with a picture pasted into one quadrant of one frame, to train tiny models on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from extractors.features import Frames
from models.caption import GridAttention
from models.decoding.options import DecodingOptions
from models.pretrained.captioner import PretrainedCaptioner
from tests.models.pretrained.attention_arrays import AttentionArrays

#: What is pasted, and the word for it.
COLOURS = {"red": (230, 30, 30), "blue": (30, 30, 230), "cat": (30, 220, 30), "dog": (230, 220, 30)}
#: The word for a video without a picture: with one such word no other is written for want of evidence.
NOTHING = "park"


@dataclass(frozen=True, eq=False)
class Pasted:
    """A video, the word for what was pasted, and where: frame, and quadrant (0 or 1 down, 0 or 1 right)."""

    video: Frames
    word: str
    frame: int
    quadrant: tuple[int, int]

    def mass(self, attention: AttentionArrays, word: int) -> float:
        """The share of a word's attention that lies in the pasted picture; an even share is 1 / (4 T)."""
        rows, columns = attention.grid
        joint = (attention.temporal[word, :, None] * attention.spatial[word]).reshape(-1, rows, columns)
        down, right = self.quadrant
        half = joint[self.frame].reshape(2, rows // 2, 2, columns // 2)[down, :, right]
        return float(half.sum())


def paste(seed: int, frames: int, side: int, nothing: float = 0.0) -> Pasted:
    """One such video; every seed another. nothing: how often nothing is pasted."""
    generator = np.random.default_rng(seed)
    pixels = generator.integers(118, 139, (frames, side, side, 3), dtype=np.uint8)
    word = str(generator.choice(list(COLOURS)))
    frame, down, right = (int(place) for place in generator.integers(0, (frames, 2, 2)))
    half = side // 2
    picture = (np.array(COLOURS[word]) + generator.integers(-20, 21, (half, half, 3))).clip(0, 255)
    if generator.random() < nothing:
        word = NOTHING
    else:
        pixels[frame, down * half : (down + 1) * half, right * half : (right + 1) * half] = picture
    video = Frames(pixels, np.arange(frames, dtype=np.float64), float(frames))
    return Pasted(video, word, frame, (down, right))


def train(
    captioner: PretrainedCaptioner[Any],
    loss: Callable[[list[Pasted]], Tensor],
    frames: int,
    side: int,
    steps: int,
) -> None:
    """Trains on ``steps`` batches of 32 new videos each. loss: of the captions of a batch."""
    optimizer = torch.optim.AdamW(captioner.model.parameters(), 3e-3)
    captioner.model.train()
    for step in range(steps):
        total = loss([paste(step * 32 + place, frames, side, nothing=0.2) for place in range(32)])
        optimizer.zero_grad()
        total.backward()
        optimizer.step()
    captioner.model.eval()


def assert_finds_pasted(captioner: PretrainedCaptioner[Any], frames: int, side: int, share: float) -> None:
    """Twelve new videos are named rightly, each word's attention with at least ``share`` in its picture.

    Its evidence names the picture's moment, and the heaviest cell lies in the picture.
    """
    asked = [paste(10**6 + place, frames, side) for place in range(12)]
    options = DecodingOptions(method="greedy", max_length=4, explanation="both")
    found = captioner.caption([each.video for each in asked], options)
    assert [best.text for (best,) in found] == [each.word for each in asked]
    assert {each.word for each in asked} == set(COLOURS)
    for each, (best,) in zip(asked, found, strict=True):
        assert each.mass(AttentionArrays.of_caption(best), 0) > share
        assert best.attention is not None
        evidence = best.attention.evidence
        assert evidence is not None
        assert evidence.moments == [each.frame]
        assert isinstance(evidence.spatial, GridAttention)
        cells = np.array((evidence.spatial.weights[0] or [])[each.frame])
        row, column = np.unravel_index(int(cells.argmax()), (evidence.spatial.rows, evidence.spatial.columns))
        assert int(2 * row // evidence.spatial.rows) == each.quadrant[0]
        assert int(2 * column // evidence.spatial.columns) == each.quadrant[1]


def normalised(videos: list[Pasted], processor: Any) -> Tensor:
    """(B, T, 3, H, W), as ``processor`` makes of frames that have its size already."""
    pixels = torch.from_numpy(np.stack([each.video.pixels for each in videos])).float() / 255
    mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    return ((pixels - mean) / std).movedim(-1, 2)
