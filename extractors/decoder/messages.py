"""Messages between a decoder and its parent: lines of JSON, and pixels in a shared file beside them.

Answers are JSON and not pickle, because the child reads hostile files: whatever it has become, it can give
wrong values but cannot make its parent run code.

Chunk k of a stream lies in slot k mod SLOTS of the file; the parent says TAKEN when it has copied one, and
the child waits for that before it uses the slot again. Behind each request comes a descriptor of its file.
"""

import json
import math
import os
import pickle
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio
from extractors.media.errors import MediaError, MediaWarning, error_from_code
from extractors.media.request import DecodeRequest, Limits, Video
from extractors.media.stream_parts import FrameChunk, StreamEnd, StreamPart, StreamStart

LONGEST_MESSAGE = 16 << 20  # times of two million frames never travel, those of the sampled ones do
SLOTS = 2  # one is read or awaited while the other is filled
TAKEN = b"taken"
READY = "ready"  # the child's first word; behind it the layers of its box that the kernel lacks


def pack_request(request: DecodeRequest, limits: Limits) -> bytes:
    """Writes down what the child is to decode, and what the file may cost, for ``unpack_request``."""
    return pickle.dumps((request, limits))


def unpack_request(message: bytes) -> tuple[DecodeRequest, Limits]:
    """Reads what ``pack_request`` wrote: the parent, whom the child may trust."""
    request: tuple[DecodeRequest, Limits] = pickle.loads(message)
    return request


def pack_part(part: StreamPart, shared: int, offset: int) -> bytes:
    """Writes down one part of a stream.

    Args:
        part: the part.
        shared: descriptor of the file that both sides hold.
        offset: where in it a chunk's pixels, or the end's samples, are written.

    Returns:
        The message, for ``unpack_part``.
    """
    content: dict[str, Any]
    if isinstance(part, StreamStart):
        content = {"start": asdict(part)}
    elif isinstance(part, FrameChunk):
        _write(shared, offset, *part.pixels)
        shapes = [pixels.shape for pixels in part.pixels]
        content = {"shapes": shapes, "pts": part.pts.tolist(), "until": part.until}
    else:
        _write(shared, offset, *_samples_of(part.audio))
        content = {"video": asdict(part.video), "audio": _describe_audio(part.audio)}
    return json.dumps({**content, "offset": offset}).encode()


def _write(shared: int, offset: int, *arrays: NDArray[Any]) -> None:
    """Writes by position: parent and child share one file position, and use the file at once."""
    for array in arrays:
        left = array.reshape(-1).view(np.uint8).data
        while left:
            written = os.pwrite(shared, left, offset)
            left, offset = left[written:], offset + written


def _samples_of(audio: Audio | None) -> tuple[NDArray[Any], ...]:
    return () if audio is None else (audio.samples,)


def _describe_audio(audio: Audio | None) -> dict[str, int] | None:
    return None if audio is None else {"samples": len(audio.samples), "rate": audio.rate}


def pack_error(error: MediaError) -> bytes:
    """Writes down an error that ends a stream."""
    return json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()


def unpack_part(message: bytes, shared: int, most_bytes: int) -> StreamPart:
    """Reads what ``pack_part`` wrote, pixels and samples copied out of the shared file.

    Args:
        message: from the child.
        shared: descriptor of the file that both sides hold.
        most_bytes: that an array may take.

    Returns:
        The part.

    Raises:
        MediaError: the one that the message reports.
        ValueError, KeyError, TypeError: where the message does not describe what was written.
    """
    content = _parse(message)
    if "start" in content:
        return StreamStart(**content["start"])
    if "video" in content:
        audio = _read_audio(content, shared, content["offset"], most_bytes)
        return StreamEnd(_parse_video(content["video"]), audio)
    pts, until = np.array(content["pts"], np.float64), float(content["until"])
    pixels, offset = [], content["offset"]
    for shape in content["shapes"]:
        pixels.append(_read_pixels(shape, shared, offset, most_bytes))
        offset += pixels[-1].nbytes
        if len(pixels[-1]) != len(pts):
            raise ValueError("other times than pixels")
    return FrameChunk(tuple(pixels), pts, until)


def _parse(message: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(message)
    if "error" in content:
        raise error_from_code(content["error"]["code"], content["error"]["message"])
    return content


def _read_pixels(sides: Sequence[int], shared: int, offset: int, most_bytes: int) -> NDArray[np.uint8]:
    shape = tuple(int(side) for side in sides)
    if len(shape) != 4 or min(shape) < 1 or math.prod(shape) > most_bytes:
        raise ValueError("impossible shape")
    return _read_array(shared, offset, np.dtype(np.uint8), math.prod(shape)).reshape(shape)


def _read_audio(content: dict[str, Any], shared: int, offset: int, most_bytes: int) -> Audio | None:
    if not content["audio"]:
        return None
    samples = int(content["audio"]["samples"])
    if not 0 <= 4 * samples <= most_bytes:
        raise ValueError("impossible number of samples")
    return Audio(_read_array(shared, offset, np.dtype(np.float32), samples), content["audio"]["rate"])


def _read_array(shared: int, offset: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    array = np.empty(count, kind)
    left = array.view(np.uint8).data
    while left:
        read = os.preadv(shared, [left], offset)
        if not read:
            raise ValueError("less was written than described")
        left, offset = left[read:], offset + read
    return array


def _parse_video(content: dict[str, Any]) -> Video:
    warnings = tuple(MediaWarning(**warning) for warning in content.pop("warnings"))
    return Video(**content, warnings=warnings)
