"""Films by code of which every cut is known: each scene a texture of its own that drifts slowly."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from PIL import Image

from tests.media import Picture, write_video

FPS = 10


def write_scenes(
    path: Path, seconds: Sequence[float], *, fps: int = FPS, width: int = 96, height: int = 64
) -> Path:
    """One scene after the other, so many seconds of each."""
    ends = np.cumsum([round(each * fps) for each in seconds])

    def paint(index: int, width: int, height: int) -> Picture:
        scene = int(np.searchsorted(ends, index, side="right"))
        return np.roll(texture(scene, width, height), index, axis=1)

    return write_video(path, frames=int(ends[-1]), width=width, height=height, fps=fps, painter=paint)


def cuts_of(seconds: Sequence[float]) -> list[float]:
    """When the scenes but the first begin."""
    return [round(float(each), 6) for each in np.cumsum(seconds)[:-1]]


@lru_cache(maxsize=64)
def texture(scene: int, width: int, height: int) -> Picture:
    """Soft blotches of colours that are this scene's alone."""
    generator = np.random.default_rng(scene + 1)
    coarse = generator.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))
