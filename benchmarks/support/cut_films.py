"""Draws films whose cuts are known, in the kinds, rates and containers that people have."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from benchmarks.support.joined_film import RATE, read_pictures

Picture: TypeAlias = NDArray[np.uint8]
#: Makes the picture of a shot, by its number and the seconds since it began.
Paint: TypeAlias = Callable[[int, float], Picture]

SHOTS, SECONDS = 6, 4.0
TICK = Fraction(1, 1000)
CODECS = {".webm": "libvpx-vp9", ".gif": "gif", ".png": "apng"}
PIXELS = {".gif": "rgb8", ".png": "rgb24"}


@dataclass(frozen=True)
class CutFilm:
    """A kind of film.

    rate: frames a second. suffix: of the file. seconds: of a shot. tolerance: seconds by which a cut may be
    off. one_shot: whether nothing in it is a cut.
    """

    kind: str
    paint: Paint
    rate: float = 25.0
    suffix: str = ".mp4"
    seconds: float = SECONDS
    tolerance: float = 0.1
    one_shot: bool = False

    @property
    def cuts(self) -> list[float]:
        """Lists the seconds at which a shot begins."""
        return [] if self.one_shot else [shot * self.seconds for shot in range(1, SHOTS)]

    def write(self, path: Path) -> Path:
        """Writes the film; returns the path."""
        count = round(self.seconds * self.rate)
        times = [shot * self.seconds + frame / self.rate for shot in range(SHOTS) for frame in range(count)]
        pictures = (self.paint(shot, frame / self.rate) for shot in range(SHOTS) for frame in range(count))
        return _write(path, pictures, self.paint(0, 0.0).shape, times, 1 / self.rate)


@dataclass(frozen=True, eq=False)
class ClipFilm:
    """Pieces of real clips behind each other, changed and stored as people have them.

    pieces: of each clip its pictures at ``joined_film.RATE``, whole seconds of them.
    """

    kind: str
    pieces: Sequence[Sequence[Picture]]
    rate: float = 25.0
    suffix: str = ".mp4"
    change: Callable[[Picture], Picture] = lambda picture: picture
    is_still: bool = False  #: of each piece the first picture stands
    tolerance: float = 0.1

    @property
    def cuts(self) -> list[float]:
        """Lists the seconds at which a clip begins."""
        return list(accumulate(len(piece) / RATE for piece in self.pieces))[:-1]

    def write(self, path: Path) -> Path:
        """Writes the film; returns the path."""
        begins, times, shown = [0.0, *self.cuts], [], []
        for begin, piece in zip(begins, self.pieces, strict=True):
            for frame in range(round(len(piece) / RATE * self.rate)):
                times.append(begin + frame / self.rate)
                shown.append(piece[0 if self.is_still else int(frame * RATE / self.rate)])
        pictures = (self.change(picture) for picture in shown)
        return _write(path, pictures, self.change(shown[0]).shape, times, 1 / self.rate)


def clip_films(clips: Sequence[Path], most: int) -> list[ClipFilm]:
    """Lists films of 3 to 9 seconds each of so many clips, the same pieces in each film."""
    generator = random.Random(0)
    pieces: list[list[Picture]] = []
    for clip in clips:
        length, pictures = generator.randint(3, 9) * RATE, read_pictures(clip)
        if len(pictures) >= length and len(pieces) < most:
            pieces.append([_halved(picture) for picture in pictures[:length]])
    return [
        ClipFilm("clips", pieces),
        ClipFilm("clips, grey", pieces, change=_grey),
        ClipFilm("clips, 9:16 in 16:9", pieces, change=_barred),
        ClipFilm("clips", pieces, 10.0, ".gif"),
        ClipFilm("clips", pieces, 5.0, ".mkv"),
        ClipFilm("clips", pieces, 2.0),
        ClipFilm("clips, slides", pieces, 5.0, is_still=True),
        ClipFilm("clips, slides", pieces, 1.0, ".webm", is_still=True),
    ]


def _halved(picture: Picture) -> Picture:
    size = (picture.shape[1] // 2, picture.shape[0] // 2)
    return np.asarray(Image.fromarray(picture).resize(size, Image.Resampling.BOX), np.uint8)


def _grey(picture: Picture) -> Picture:
    return np.repeat(picture.mean(2, keepdims=True), 3, 2).astype(np.uint8)


def _barred(picture: Picture) -> Picture:
    """Blackens all but the middle that an upright film would have."""
    barred, part = np.zeros_like(picture), picture.shape[0] * 9 // 16
    left = (picture.shape[1] - part) // 2
    barred[:, left : left + part] = picture[:, left : left + part]
    return barred


def _write(
    path: Path, pictures: Iterator[Picture], shape: tuple[int, ...], times: list[float], stay: float
) -> Path:
    codec, pixels = CODECS.get(path.suffix, "libx264"), PIXELS.get(path.suffix, "yuv420p")
    kind = "apng" if path.suffix == ".png" else None
    with av.open(str(path), "w", format=kind) as out:
        fast = {"libx264": {"preset": "veryfast"}, "libvpx-vp9": {"cpu-used": "8", "deadline": "realtime"}}
        stream: Any = out.add_stream(codec, rate=25, options=fast.get(codec, {}))
        stream.codec_context.time_base = TICK
        stream.height, stream.width, stream.pix_fmt = *shape[:2], pixels
        for time, picture in zip(times, pictures, strict=True):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format=pixels)
            frame.pts, frame.duration, frame.time_base = round(time / TICK), round(stay / TICK), TICK
            _mux(out, stream.encode(frame), stay)
        _mux(out, stream.encode(), stay)
    return path


def _mux(out: Any, packets: Any, stay: float) -> None:
    for packet in packets:
        packet.duration = round(stay / float(packet.time_base))
        out.mux(packet)


def patches(
    shot: int, width: int = 96, height: int = 54, low: int = 60, high: int = 195, grey: bool = False
) -> Picture:
    """Patches of colours, or greys, that are this shot's alone, between two values."""
    values = np.random.default_rng(100 + shot).integers(low, high + 1, (1 + height // 9, 1 + width // 9, 3))
    values = np.repeat(values[..., :1], 3, 2) if grey else values
    rows, columns = np.arange(height) // 9, np.arange(width) // 9
    return values[rows][:, columns].astype(np.uint8)


def moving(size: tuple[int, int] = (96, 54), speed: float = 12.0, **look: Any) -> Paint:
    """Patches that go by at so many pixels a second."""
    return lambda shot, time: np.roll(patches(shot, *size, **look), round(speed * time), 1)


def still(shot: int, _time: float) -> Picture:
    """A slide."""
    return patches(shot)


def with_cursor(shot: int, time: float) -> Picture:
    """A slide on which something small moves all the time."""
    picture = patches(shot)
    left = round(30 * time) % 90
    picture[25:29, left : left + 3] = 255
    return picture


def text_slide(shot: int, _time: float) -> Picture:
    """A white slide with lines of text, some longer than those of the slide before."""
    picture = np.full((54, 96, 3), 255, np.uint8)
    for row, length in enumerate(np.random.default_rng(shot).integers(10, 80, 8)):
        picture[4 + 6 * row : 8 + 6 * row, 6 : 6 + length : 2] = 20
    return picture


def within(paint: Paint, left: int, top: int, around: Picture) -> Paint:
    """Shows a film within a larger, still picture."""

    def painted(shot: int, time: float) -> Picture:
        picture, inner = around.copy(), paint(shot, time)
        picture[top : top + inner.shape[0], left : left + inner.shape[1]] = inner
        return picture

    return painted


def tinted(paint: Paint) -> Paint:
    """Sepia."""
    tint = np.array([1.0, 0.86, 0.66])
    return lambda shot, time: (paint(shot, time).mean(2, keepdims=True) * tint).astype(np.uint8)


def fading(paint: Paint, length: float) -> Paint:
    """Fades each shot in from black and out to black, in so many seconds each."""

    def painted(shot: int, time: float) -> Picture:
        end = SECONDS - time - 0.04
        light = min(1.0, time / length if shot else 1.0, max(0.0, end / length))
        return (paint(shot, time) * light).astype(np.uint8)

    return painted


def flashing(paint: Paint) -> Paint:
    """One shot in which a light flashes for a frame, once in its ``SECONDS``."""

    def painted(shot: int, time: float) -> Picture:
        picture = paint(0, shot * SECONDS + time)
        return np.maximum(picture, 235) if 2.0 <= time < 2.04 else picture

    return painted


def _desk() -> Picture:
    return np.roll(patches(77, low=0, high=255), 7, 0)


def _filled(value: int, width: int = 96, height: int = 54) -> Picture:
    return np.full((height, width, 3), value, np.uint8)


def all_films() -> list[CutFilm]:
    """Lists the films of the benchmark."""
    upright = moving((30, 54))
    films = [
        CutFilm("colour", moving()),
        CutFilm("colour, full contrast", moving(low=0, high=255)),
        CutFilm("grey", moving(grey=True)),
        CutFilm("sepia", tinted(moving())),
        CutFilm("night", moving(low=0, high=40)),
        CutFilm("9:16 in 16:9", within(upright, 33, 0, _filled(0))),
        CutFilm("9:16 in 16:9, white", within(upright, 33, 0, _filled(255))),
        CutFilm("9:16 in 16:9, grey film", within(moving((30, 54), grey=True), 33, 0, _filled(0))),
        CutFilm("16:9 in 9:16", within(moving((54, 30)), 0, 33, _filled(0, 54, 96))),
        CutFilm("4:3 in 16:9", within(moving((72, 54)), 12, 0, _filled(0))),
        CutFilm("window on a desk", within(moving((48, 32)), 20, 12, _desk())),
        CutFilm("fades of 0.5 s through black", fading(moving(), 0.5), tolerance=0.6),
        CutFilm("fades of 1 s through black", fading(moving(), 1.0), tolerance=0.6),
        CutFilm("flashes", flashing(moving()), one_shot=True),
        CutFilm("fast camera", moving(speed=40.0)),
    ]
    for rate in (25.0, 10.0, 5.0, 2.0, 1.0, 0.5, 1 / SECONDS):
        films += [CutFilm("slides", still, rate), CutFilm("text slides", text_slide, rate)]
        if rate >= 0.5:
            films.append(CutFilm("slides with a cursor", with_cursor, rate))
    for rate in (10.0, 5.0, 2.0, 1.0):
        films.append(CutFilm("moving", moving(speed=4.0), rate))
    for suffix in (".mkv", ".webm", ".gif", ".png"):
        films += [CutFilm("slides", still, rate, suffix) for rate in (5.0, 1.0, 1 / SECONDS)]
    films += [
        CutFilm("bars, slides", within(lambda shot, _: patches(shot, 30, 54), 33, 0, _filled(0)), r)
        for r in (5.0, 0.5)
    ]
    return films
