"""Films for the tests of the page that tests/media.py has no need for."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from app.api.page_files import STATIC
from tests.media import Picture, write_video

SAMPLE = STATIC / "examples/coffee.mp4"  #: four seconds that the page carries
TWO_SHOTS = STATIC / "examples/shots.mp4"  #: of it each word has a moment
SHOTS = (SAMPLE, STATIC / "examples/rabbit.mp4")
SHOT_SECONDS, FPS = 3, 5


def write_shots(path: Path) -> Path:
    """Writes a film of four shots, three seconds each: two examples, and both again as in a mirror."""
    kept = [picture for shot in SHOTS for picture in _pictures(shot)[: SHOT_SECONDS * FPS]]
    height, width = kept[0].shape[:2]

    def paint(index: int, _width: int, _height: int) -> Picture:
        picture: Picture = kept[index % len(kept)]
        return picture if index < len(kept) else picture[:, ::-1]

    return write_video(path, frames=2 * len(kept), fps=FPS, width=width, height=height, painter=paint)


def _pictures(path: Path) -> list[Picture]:
    """Decodes every third picture of an example, FPS of them a second."""
    with av.open(path) as container:
        return [np.asarray(frame.to_image(), np.uint8) for frame in container.decode(video=0)][::3]
