"""Films by code of which every cut is known: each scene a texture of its own that drifts slowly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
from PIL import Image, ImageDraw

from tests.media import Picture, write_video

FPS = 10


def write_scenes(
    path: Path, seconds: Sequence[float], *, fps: int = FPS, width: int = 96, height: int = 64
) -> Path:
    """One scene after the other, so many seconds of each."""

    def paint(scene: int, index: int, width: int, height: int) -> Picture:
        return np.roll(texture(scene, width, height), index, axis=1)

    return _write(path, seconds, paint, fps, (width, height))


def write_patterns(path: Path, seconds: Sequence[float]) -> Path:
    """One pattern after the other, so many seconds of each; the semantic embedding, too, tells them apart."""

    def paint(scene: int, index: int, width: int, height: int) -> Picture:
        return pattern(scene, width, height)

    return _write(path, seconds, paint, FPS, (96, 64))


def _write(
    path: Path,
    seconds: Sequence[float],
    paint: Callable[[int, int, int, int], Picture],
    fps: int,
    size: tuple[int, int],
) -> Path:
    """paint: makes a picture of the scene's number, the frame's, width and height."""
    ends = np.cumsum([round(each * fps) for each in seconds])

    def paint_frame(index: int, width: int, height: int) -> Picture:
        return paint(int(np.searchsorted(ends, index, side="right")), index, width, height)

    width, height = size
    return write_video(path, frames=int(ends[-1]), width=width, height=height, fps=fps, painter=paint_frame)


@lru_cache(maxsize=8)
def pattern(scene: int, width: int, height: int) -> Picture:
    """Blotches, stripes, a face, noise, a ball, and so on from the start."""
    picture = Image.new("RGB", (width, height), (200, 180, 160) if scene % 5 == 2 else (10, 10, 10))
    draw = ImageDraw.Draw(picture)
    match scene % 5:
        case 0:
            return texture(0, width, height)
        case 1:
            for left in range(0, width, 12):
                draw.rectangle((left, 0, left + 5, height), fill="white")
        case 2:
            draw.ellipse((28, 8, 68, 58), fill=(230, 190, 150))
            draw.ellipse((38, 24, 44, 30), fill="black")
            draw.ellipse((54, 24, 60, 30), fill="black")
            draw.arc((38, 34, 60, 50), 0, 180, fill=(120, 0, 0), width=2)
        case 3:
            return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        case 4:
            draw.ellipse((30, 14, 66, 50), fill=(240, 60, 30))
    return np.array(picture)


def cuts_of(seconds: Sequence[float]) -> list[float]:
    """When the scenes but the first begin."""
    return [round(float(each), 6) for each in np.cumsum(seconds)[:-1]]


@lru_cache(maxsize=64)
def texture(scene: int, width: int, height: int) -> Picture:
    """Soft blotches of colours that are this scene's alone."""
    generator = np.random.default_rng(scene + 1)
    coarse = generator.integers(0, 256, (4, 6, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC))


def delay(film: Path, path: Path, seconds: float) -> Path:
    """The same film, whose first picture is shown so many seconds later on the clock of players."""
    with av.open(str(film)) as source, av.open(str(path), "w") as out:
        track = source.streams.video[0]
        late: Any = out.add_stream_from_template(track)
        for packet in source.demux(track):
            if packet.pts is not None and packet.dts is not None:
                ticks = round(seconds / packet.time_base)
                packet.pts, packet.dts, packet.stream = packet.pts + ticks, packet.dts + ticks, late
                out.mux(packet)
    return path
