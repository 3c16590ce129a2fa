"""Draws films in the shapes that files have in the wild, with each frame's number as bars in its picture.

The picture is a pan over a texture with an object that moves against it and a little noise, so that encoders
choose B-frames as they do for what cameras give. The bars say which frame a reader has returned, whatever
time it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

BITS = 10  #: of a frame's number, the lowest on the left
LIGHT, DARK = 220, 30
RATE = 25
TICK = Fraction(1, 1000)
#: Milliseconds from one frame to the next, as phones have them: about 25 a second, with pauses.
UNEVEN = (17, 33, 33, 50, 100, 34, 33, 40)


@dataclass(frozen=True, eq=False)
class FilmShape:
    """What to draw: the shape's name, a file name's end, and how it is encoded.

    steps: milliseconds from one frame to the next, in turn.
    """

    name: str
    suffix: str
    codec: str
    width: int
    height: int
    frames: int
    options: Mapping[str, str]
    steps: tuple[int, ...] = field(default=(1000 // RATE,))

    @property
    def times(self) -> NDArray[np.float64]:
        """Seconds (frames,) at which the frames are shown."""
        return np.array(list(self._ticks()), np.float64) / 1000

    @property
    def duration(self) -> float:
        """Seconds of the film, the last frame's stay included, which is that of a frame at RATE."""
        return float(self.times[-1]) + 1 / RATE

    @property
    def file_name(self) -> str:
        """Name of its file."""
        return f"{self.name.replace(' ', '_')}_{self.frames}{self.suffix}"

    def _ticks(self) -> Iterator[int]:
        return islice(accumulate(cycle(self.steps), initial=0), self.frames)

    def draw(self, path: Path) -> Path:
        """Encode the film."""
        with av.open(str(path), "w") as out:
            stream: Any = out.add_stream(self.codec, rate=RATE, options=dict(self.options))
            stream.width, stream.height, stream.pix_fmt = self.width, self.height, "yuv420p"
            stream.codec_context.time_base = TICK
            for planes, tick in zip(draw_planes(self.width, self.height), self._ticks(), strict=False):
                frame = av.VideoFrame.from_ndarray(planes, format="yuv420p")
                frame.pts, frame.time_base = tick, TICK
                out.mux(stream.encode(frame))
            out.mux(stream.encode())
        return path


def draw_planes(width: int, height: int) -> Iterator[NDArray[np.uint8]]:
    """Draw frames without end, each uint8 (height · 3/2, width) as yuv420p has it."""
    generator = np.random.default_rng(0)
    coarse = generator.integers(60, 200, (height // 16 + 1, width // 8 + 1), np.uint8)
    texture = np.kron(coarse, np.ones((16, 16), np.uint8))[:height]
    texture = texture + generator.integers(0, 16, texture.shape, np.uint8)
    noise = generator.integers(0, 3, (8, height, width), np.uint8)
    chroma = np.full((height // 2, width), 128, np.uint8)
    side = height // 4
    position = 0
    while True:
        left = 3 * position % width
        luma = texture[:, left : left + width] + noise[position % len(noise)]
        across = (width - 5 * position) % (width - side)
        luma[height // 2 : height // 2 + side, across : across + side] = coarse[position % 4, 0]
        draw_bars(luma, position)
        yield np.concatenate([luma, chroma])
        position += 1


def draw_bars(luma: NDArray[np.uint8], number: int) -> None:
    """Write a frame's number into the upper eighth of a picture uint8 (H, W)."""
    height, width = luma.shape
    for bit in range(BITS):
        bar = slice(bit * width // BITS, (bit + 1) * width // BITS)
        luma[: height // 8, bar] = LIGHT if number >> bit & 1 else DARK


def read_bars(pixels: NDArray[np.uint8]) -> list[int]:
    """Read the frames' numbers out of pictures uint8 (T, H, W, 3) of any size."""
    _, height, width, _ = pixels.shape
    columns = [(2 * bit + 1) * width // (2 * BITS) for bit in range(BITS)]
    is_light = pixels[:, height // 16, columns].mean(axis=2) > (LIGHT + DARK) / 2
    numbers: list[int] = (is_light @ (1 << np.arange(BITS))).tolist()
    return numbers


X264 = {"preset": "veryfast", "crf": "23", "bf": "3"}
SHAPES = (
    FilmShape("long GOP", ".mp4", "libx264", 1280, 720, 250, {**X264, "g": "250"}),
    FilmShape("open GOP", ".mp4", "libx264", 1280, 720, 250, {**X264, "x264-params": "keyint=48:open-gop=1"}),
    FilmShape("VFR", ".mkv", "libx264", 1280, 720, 250, {**X264, "g": "125"}, UNEVEN),
    FilmShape("TS", ".ts", "libx264", 1280, 720, 250, {**X264, "g": "50"}),
    FilmShape(
        "4K HEVC",
        ".mp4",
        "libx265",
        3840,
        2160,
        75,
        {"preset": "ultrafast", "x265-params": "keyint=50:bframes=3:log-level=none"},
    ),
    FilmShape("AV1", ".webm", "libsvtav1", 1280, 720, 250, {"preset": "7", "crf": "30", "g": "125"}),
)
