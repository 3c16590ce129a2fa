"""Films for the tests of the page that tests/media.py has no need for."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.media import Picture, write_video

SHOTS, SHOT_FRAMES, FPS = 4, 30, 10


def write_shots(path: Path) -> Path:
    """Writes a film of SHOTS shots, three seconds each, whose pictures have nothing in common."""
    return write_video(path, frames=SHOTS * SHOT_FRAMES, fps=FPS, width=320, height=240, painter=_shot)


def _shot(index: int, width: int, height: int) -> Picture:
    """Stripes, finer and in another colour with each shot: uint8 (height, width, 3)."""
    shot = index // SHOT_FRAMES
    period = 16 * 2**shot
    on = (np.arange(width) + index) % period < period // 2
    picture = np.zeros((height, width, 3), np.uint8)
    picture[:, on, shot % 3] = 230
    picture[:, ~on] = 40 * shot
    return picture
