"""Small real video files, made when a test asks for them.

Two kinds of picture are drawn. ``quarters`` tells orientation, colour and, roughly, time: red top left,
green top right, blue bottom left, and a grey bottom right that brightens with every frame. ``numbered``
carries the frame's number as black and white blocks with a parity block, so that ``read_number`` can say
which frame a decoder really returned.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeAlias

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

Picture: TypeAlias = NDArray[np.uint8]
Painter: TypeAlias = Callable[[int, int, int], Picture]

NUMBER_BITS = 15
AUDIO_BLOCK = 1024


def quarters(index: int, width: int, height: int) -> Picture:
    """Red, green, blue and grey (8 × index) quarters: uint8 (height, width, 3)."""
    picture = np.empty((height, width, 3), np.uint8)
    top, left = slice(0, height // 2), slice(0, width // 2)
    bottom, right = slice(height // 2, height), slice(width // 2, width)
    picture[top, left] = (255, 0, 0)
    picture[top, right] = (0, 255, 0)
    picture[bottom, left] = (0, 0, 255)
    picture[bottom, right] = 8 * index % 256
    return picture


def numbered(index: int, width: int, height: int) -> Picture:
    """The index in 4 × 4 blocks, lowest bit first, the last block making the white ones even."""
    bits = [index >> k & 1 for k in range(NUMBER_BITS)]
    cells = np.array([*bits, sum(bits) % 2], np.uint8).reshape(4, 4) * 255
    rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
    return np.repeat(cells[rows][:, columns, None], 3, axis=2)


def read_number(picture: Picture) -> int | None:
    """The index that ``numbered`` drew, or None where the parity is wrong."""
    height, width = picture.shape[:2]
    rows, columns = (2 * np.arange(4) + 1) * height // 8, (2 * np.arange(4) + 1) * width // 8
    bits = (picture[rows][:, columns].mean(axis=2) > 127).ravel()
    number = sum(1 << k for k in range(NUMBER_BITS) if bits[k])
    return number if bits.sum() % 2 == 0 else None


def write_video(
    path: Path,
    *,
    frames: int = 30,
    width: int = 64,
    height: int = 48,
    codec: str = "libx264",
    fps: int | Fraction = 10,
    pix_fmt: str = "yuv420p",
    pts: Sequence[float] | None = None,
    rotation: float | None = None,
    sample_aspect: Fraction | None = None,
    audio_seconds: float = 0.0,
    audio_codec: str = "aac",
    audio_rate: int = 16000,
    audio_layout: str = "mono",
    audio_start: float = 0.0,
    audio_pitch: float = 440.0,
    painter: Painter = quarters,
    options: Mapping[str, str] | None = None,
    container_format: str | None = None,
    container_options: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write one file and return its path.

    pts: seconds of each frame, to the millisecond (None: evenly spaced by ``fps``).
    rotation: degrees of the display matrix, counter-clockwise as ``np.rot90`` counts.
    sample_aspect: width of a pixel over its height. options: for the video encoder ("g", "bf", …).
    """
    with av.open(str(path), "w", format=container_format, options=dict(container_options or {})) as out:
        out.metadata.update(metadata or {})
        video: Any = out.add_stream(codec, rate=fps, options=dict(options or {}))
        video.width, video.height, video.pix_fmt = width, height, pix_fmt
        if sample_aspect is not None:
            video.sample_aspect_ratio = sample_aspect
        if rotation is not None:
            video.set_display_rotation(rotation)
        if pts is not None:
            video.codec_context.time_base = Fraction(1, 1000)
        audio: Any = out.add_stream(audio_codec, rate=audio_rate) if audio_seconds else None
        if audio is not None:
            audio.layout = audio_layout
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(painter(index, width, height), format="rgb24")
            if pts is not None:
                frame.pts, frame.time_base = round(pts[index] * 1000), Fraction(1, 1000)
            out.mux(video.encode(frame))
        out.mux(video.encode())
        if audio is not None:
            for block in tone(audio_seconds, audio_rate, audio_layout, audio_start, audio_pitch):
                out.mux(audio.encode(block))
            out.mux(audio.encode())
    return path


def tone(
    seconds: float, rate: int, layout: str = "mono", start: float = 0.0, pitch: float = 440.0
) -> Iterator[av.AudioFrame]:
    """Blocks of a sine of so many hertz at a quarter of full scale."""
    samples = np.sin(2 * np.pi * pitch * np.arange(round(seconds * rate)) / rate) * 8192
    channels = av.AudioLayout(layout).nb_channels
    for at in range(0, len(samples), AUDIO_BLOCK):
        block = samples[at : at + AUDIO_BLOCK].astype(np.int16)
        frame = av.AudioFrame.from_ndarray(np.repeat(block, channels)[None], format="s16", layout=layout)
        frame.rate, frame.pts, frame.time_base = rate, at + round(start * rate), Fraction(1, rate)
        yield frame


def write_audio(path: Path, *, seconds: float = 1.0, codec: str = "aac", rate: int = 16000) -> Path:
    """A file with sound and no picture."""
    with av.open(str(path), "w") as out:
        audio: Any = out.add_stream(codec, rate=rate)
        audio.layout = "mono"
        for block in tone(seconds, rate):
            out.mux(audio.encode(block))
        out.mux(audio.encode())
    return path


def write_gif(path: Path, delays: Sequence[int], *, width: int = 64, height: int = 48) -> Path:
    """An animated picture (gif, webp or png by the path's suffix), each frame shown for its delay in ms."""
    stills = [Image.fromarray(quarters(5 * k, width, height)) for k in range(len(delays))]
    stills[0].save(path, save_all=True, append_images=stills[1:], duration=list(delays), loop=0)
    return path


def write_still(path: Path, *, width: int = 64, height: int = 48, kind: str = "JPEG") -> Path:
    """A single picture, whatever the path's suffix says."""
    buffer = io.BytesIO()
    Image.fromarray(quarters(0, width, height)).save(buffer, kind)
    path.write_bytes(buffer.getvalue())
    return path


def cut(source: Path, path: Path, keep: float) -> Path:
    """The first ``keep`` (0 to 1) of a file's bytes."""
    content = source.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    return path


def without_index(source: Path, path: Path) -> Path:
    """An mp4 cut off before the box that says where its frames lie."""
    content = source.read_bytes()
    path.write_bytes(content[: content.index(b"moov") - 4])
    return path
