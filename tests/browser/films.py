"""Films for the tests of the page that tests/media.py has no need for."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from app.api import application
from tests.media import Picture, write_video

SAMPLE = Path(application.__file__).parent / "static" / "sample.mp4"  #: two shots of three seconds
SHOT_SECONDS, FPS = 3, 5


def write_shots(path: Path) -> Path:
    """Writes a film of four shots, three seconds each: those of the sample, and both again as in a mirror."""
    with av.open(SAMPLE) as container:
        pictures = [np.asarray(frame.to_image(), np.uint8) for frame in container.decode(video=0)]
    kept = pictures[:: len(pictures) // (2 * SHOT_SECONDS * FPS)][: 2 * SHOT_SECONDS * FPS]
    height, width = kept[0].shape[:2]

    def paint(index: int, _width: int, _height: int) -> Picture:
        picture: Picture = kept[index % len(kept)]
        return picture if index < len(kept) else picture[:, ::-1]

    return write_video(path, frames=2 * len(kept), fps=FPS, width=width, height=height, painter=paint)
