"""Makes pseudo-videos of stills and sparse frames: moving windows, between shots of other pictures.

A captioner that has only ever seen one frame learns nothing about time. So a sample is 1 to 8 steps long:
its true shot pans or zooms over the captioned picture (or runs through the captioned video's frames), and
in half of the longer samples shots of *other* training pictures stand around it. The captions are those
of the true shot, whose place is uniform, so a temporal attention has something to find.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from lab.pictures.picture_features import MIRRORED, PAN_END, PAN_MIDDLE, PAN_START, WHOLE, PictureStreams
from models.inputs import Batch

PATHS = (
    (WHOLE, WHOLE),
    (MIRRORED, MIRRORED),
    (PAN_START, PAN_MIDDLE, PAN_END),
    (PAN_END, PAN_MIDDLE, PAN_START),
    (WHOLE, PAN_MIDDLE),
    (PAN_MIDDLE, WHOLE),
)
PATH_ODDS = (0.4, 0.2, 0.1, 0.1, 0.1, 0.1)
#: What I3D sees of a still is shorter than what it sees of real motion, by 0.62 on average
#: (docs/results/motion.md).
MOTION_GAIN = (1.0, 2.2)


@dataclass(frozen=True, eq=False)
class Pictures:
    """The place of an item's features: the cache, and the rows of its frames in time order."""

    cache: PictureStreams
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Shots:
    """Odds of samples. lengths: of 1, 2, … steps. distractors: the share of longer ones with other shots."""

    lengths: tuple[float, ...]
    distractors: float = 0.5

    def draw_length(self, rng: np.random.Generator) -> int:
        """Draws a sample's number of steps."""
        return 1 + int(rng.choice(len(self.lengths), p=np.array(self.lengths) / sum(self.lengths)))


@dataclass(frozen=True, eq=False)
class Sample:
    """A pseudo-video: stream → float16 (T, N, C), and which steps belong to the captioned picture (T,)."""

    values: Mapping[str, NDArray[np.float16]]
    true: NDArray[np.bool_]


def sample_whole(pictures: Pictures) -> Sample:
    """Takes the item's frames as they are, one step each."""
    rows = list(pictures.rows)
    return Sample(pictures.cache.take(rows, [WHOLE] * len(rows)), np.ones(len(rows), bool))


def sample_shot(
    pictures: Pictures, steps: int, rng: np.random.Generator
) -> Mapping[str, NDArray[np.float16]]:
    """Takes the frames in order along one path of the views that the cache has.

    Args:
        pictures: the item's frames.
        steps: of the shot.
        rng: draws the path.

    Returns:
        Stream → (steps, N, C).
    """
    odds = np.array(
        [odd * (max(path) < pictures.cache.views) for path, odd in zip(PATHS, PATH_ODDS, strict=True)]
    )
    path = PATHS[rng.choice(len(PATHS), p=odds / odds.sum())]
    at = np.linspace(0, 1, steps) if steps > 1 else rng.random(1)
    views = np.array(path)[np.round(at * (len(path) - 1)).astype(int)]
    rows = np.array(pictures.rows)[np.round(at * (len(pictures.rows) - 1)).astype(int)]
    return pictures.cache.take(rows, views)


def draw_sample(
    pictures: Pictures, others: Sequence[Pictures], steps: int, shots: Shots, rng: np.random.Generator
) -> Sample:
    """Draws one sample.

    Args:
        pictures: of the captioned item.
        others: which distractor shots are drawn from.
        steps: of the sample.
        shots: how often there are distractors.
        rng: draws all of it.
    """
    if steps == 1 or rng.random() >= shots.distractors:
        return Sample(sample_shot(pictures, steps, rng), np.ones(steps, bool))
    length = int(rng.integers(1, steps))
    before = int(rng.integers(0, steps - length + 1))
    true = np.zeros(steps, bool)
    true[before : before + length] = True
    parts = [sample_shot(pictures, length, rng)]
    if before:
        parts.insert(0, sample_shot(others[int(rng.integers(len(others)))], before, rng))
    if after := steps - before - length:
        parts.append(sample_shot(others[int(rng.integers(len(others)))], after, rng))
    return Sample({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, true)


def lengthen_motion(sample: Sample, motion: Collection[str], rng: np.random.Generator) -> Sample:
    """Multiplies a sample's streams of motion by one factor, so that captioners meet features as of videos.

    Args:
        sample: of stills.
        motion: the streams' names.
        rng: draws the factor.
    """
    if not motion:
        return sample
    factor = np.float16(rng.uniform(*MOTION_GAIN))
    values = {name: each * factor if name in motion else each for name, each in sample.values.items()}
    return replace(sample, values=values)


def stack_samples(samples: Sequence[Sample], dtype: torch.dtype = torch.float32) -> dict[str, Batch]:
    """Stacks samples of one length to one batch a stream, one second a step."""
    return {name: _stack_stream([s.values[name] for s in samples], dtype) for name in samples[0].values}


def _stack_stream(samples: Sequence[NDArray[np.float16]], dtype: torch.dtype) -> Batch:
    values = torch.from_numpy(np.stack(samples)).to(dtype)
    videos, steps = values.shape[:2]
    region_mask = values.ne(0).any(3)  # a picture may have fewer boxes than others
    start = torch.arange(steps, dtype=torch.float64).expand(videos, steps)
    return Batch(
        times=torch.stack([start, start + 1], 2),
        values=values,
        frame_mask=region_mask.any(2),
        region_mask=region_mask,
    )
