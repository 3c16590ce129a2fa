"""WebP by Pillow: this FFmpeg reads a still WebP but nothing of an animated one."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from extractors import errors
from extractors.container import keep_pixels
from extractors.features import Frames
from extractors.request import Decoded, DecodeRequest, Limits
from extractors.streamed import Begin, End, Sizes, StreamPart, StreamRequest, chunked
from extractors.video import MediaWarning, Video

STILL_SECONDS = 0.04  # as FFmpeg shows single pictures: one frame of a 25 Hz film


def is_webp(path: str | os.PathLike[str]) -> bool:
    """Whether the file says of itself that it is WebP."""
    try:
        with open(path, "rb") as file:
            head = file.read(12)
    except OSError:
        return False
    return head[:4] == b"RIFF" and head[8:] == b"WEBP"


def decode_webp(path: str | os.PathLike[str], request: DecodeRequest, limits: Limits) -> Decoded:
    """The same answer as for any video. Raises IncompleteFile, TooManyPixels, TooLong and the like."""
    with _opened(path, limits) as (image, times, duration):
        chosen = request.choose(times, duration)
        pixels = np.stack([_picture(image, int(position), request.short_side) for position in chosen])
        return Decoded(
            _video(image, len(times), duration),
            Frames(pixels, times[chosen], duration, len(times) / duration),
        )


def stream_webp(path: str | os.PathLike[str], request: StreamRequest, limits: Limits) -> Iterator[StreamPart]:
    """The same parts as of any video. Raises what ``decode_webp`` raises."""
    with _opened(path, limits) as (image, times, duration):
        chosen = request.choose(times, duration)
        yield Begin(duration, len(times) / duration)
        pictures = (_sizes(image, int(position), request.short_sides) for position in chosen)
        yield from chunked(pictures, times[chosen], request.chunk_bytes)
        yield End(_video(image, len(times), duration))


@contextmanager
def _opened(
    path: str | os.PathLike[str], limits: Limits
) -> Iterator[tuple[Image.Image, NDArray[np.float64], float]]:
    """(the file, when each frame is shown, how long all of them take)."""
    deadline = time.monotonic() + limits.seconds
    try:
        with Image.open(Path(path), formats=["WEBP"]) as image:
            lengths = _checked_lengths(image, limits, deadline)
            yield image, np.cumsum(lengths) - lengths, float(lengths.sum())
    except Image.DecompressionBombError as error:
        raise errors.TooManyPixels(f"The picture is larger than {limits.pixels} pixels.") from error
    except (UnidentifiedImageError, EOFError, OSError, ValueError) as error:
        raise errors.IncompleteFile("The WebP file is damaged or cut off.") from error


def _checked_lengths(image: Image.Image, limits: Limits, deadline: float) -> NDArray[np.float64]:
    keep_pixels(image.width, image.height, limits.pixels)
    count = getattr(image, "n_frames", 1)
    if count > limits.max_frames:
        raise errors.TooManyFrames(f"The video has more than {limits.max_frames} frames.")
    lengths = _frame_lengths(image, count, deadline)
    if lengths.sum() > limits.max_duration:
        raise errors.TooLong(
            f"The video lasts {lengths.sum():.0f} seconds, and {limits.max_duration:.0f} are allowed."
        )
    return lengths


def _frame_lengths(image: Image.Image, count: int, deadline: float) -> NDArray[np.float64]:
    """Seconds each frame stays. Pillow tells only after decoding it."""
    lengths = np.full(count, STILL_SECONDS)
    for position in range(count if count > 1 else 0):
        if time.monotonic() > deadline:
            raise errors.DecodeTimeout("Decoding the video took longer than the time limit.")
        image.seek(position)
        image.load()
        lengths[position] = max(image.info.get("duration", 0), 1) / 1000
    return lengths


def _picture(image: Image.Image, position: int, short_side: int | None) -> NDArray[np.uint8]:
    image.seek(position)
    picture = image.convert("RGB")
    scale = 1.0 if short_side is None else short_side / min(picture.size)
    if scale < 1:
        width, height = (max(1, round(side * scale)) for side in picture.size)
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(picture, np.uint8)


def _sizes(image: Image.Image, position: int, short_sides: tuple[int | None, ...]) -> Sizes:
    return tuple(_picture(image, position, side) for side in short_sides)


def _video(image: Image.Image, count: int, duration: float) -> Video:
    still = MediaWarning("still_image", "The file is a single picture, not a video.")
    return Video(
        container="webp",
        codec="webp",
        duration=duration,
        width=image.width,
        height=image.height,
        rotation=0,
        fps=None,
        fps_average=count / duration,
        frames=count,
        frames_expected=None,
        frames_counted=True,
        frames_lost=0,
        times_estimated=False,
        has_audio=False,
        warnings=(still,) if count == 1 else (),
    )
