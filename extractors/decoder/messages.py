"""The language of a decoder and its parent: lines of JSON, and pixels in a shared file beside them.

JSON and not pickle, because the child reads hostile files: whatever it has become, it can answer wrong
values but cannot make its parent run code.

A whole answer lies at the file's begin. Of a stream, chunk k lies in slot k mod SLOTS; the parent says TAKEN
when it has copied one, and the child waits for that before it uses the slot again.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from extractors.features import Audio, Frames
from extractors.media.chunks import Begin, Chunk, End, StreamPart, StreamRequest
from extractors.media.errors import MediaError, error_from_code
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.video import MediaWarning, Video
from extractors.sampling import Sampling
from extractors.windows import Windows

LONGEST_MESSAGE = 16 << 20  # times of two million frames never travel, those of the sampled ones do
SLOTS = 2  # one is read or awaited while the other is filled
TAKEN = b"taken"

Request: TypeAlias = DecodeRequest | StreamRequest


def pack_request(path: str, request: Request, limits: Limits) -> bytes:
    # a path is bytes to the system: surrogates stand for those that are no UTF-8, and JSON escapes them
    return json.dumps({"path": path, "request": asdict(request), "limits": asdict(limits)}).encode()


def unpack_request(message: bytes) -> tuple[str, Request, Limits]:
    content = json.loads(message)
    return content["path"], _request(content["request"]), Limits(**content["limits"])


def _request(asked: dict[str, Any]) -> Request:
    windows = tuple(Windows(**each) for each in asked.pop("windows"))
    if "short_sides" in asked:
        return StreamRequest(windows, tuple(asked.pop("short_sides")), **asked)
    del asked["sizes"]  # of a whole answer there is one size; several are gathered from a stream
    return DecodeRequest(Sampling(**asked.pop("sampling")), **asked, windows=windows)


def pack_answer(decoded: Decoded, shared: int) -> bytes:
    """Write pixels and samples to the file ``shared`` and describe them."""
    frames, audio = decoded.frames, decoded.audio
    os.ftruncate(shared, 0)
    _write(shared, 0, frames.pixels, *_samples(audio))
    content = {
        "video": asdict(decoded.video),
        "shape": frames.pixels.shape,
        "pts": frames.pts.tolist(),
        "duration": frames.duration,
        "fps": frames.fps,
        "audio": _of_audio(audio),
    }
    return json.dumps(content).encode()


def pack_part(part: StreamPart, shared: int, offset: int) -> bytes:
    """Describe one part of a stream; a chunk's pixels are written at ``offset``, the end's samples too."""
    content: dict[str, Any]
    if isinstance(part, Begin):
        content = {"begin": asdict(part)}
    elif isinstance(part, Chunk):
        _write(shared, offset, *part.pixels)
        shapes = [pixels.shape for pixels in part.pixels]
        content = {"shapes": shapes, "pts": part.pts.tolist(), "until": part.until}
    else:
        _write(shared, offset, *_samples(part.audio))
        content = {"video": asdict(part.video), "audio": _of_audio(part.audio)}
    return json.dumps({**content, "offset": offset}).encode()


def _write(shared: int, offset: int, *arrays: NDArray[Any]) -> None:
    """By position: parent and child have one file position between them, and use the file at once."""
    for array in arrays:
        left = array.reshape(-1).view(np.uint8).data
        while left:
            written = os.pwrite(shared, left, offset)
            left, offset = left[written:], offset + written


def _samples(audio: Audio | None) -> tuple[NDArray[Any], ...]:
    return () if audio is None else (audio.samples,)


def _of_audio(audio: Audio | None) -> dict[str, int] | None:
    return None if audio is None else {"samples": len(audio.samples), "rate": audio.rate}


def pack_error(error: MediaError) -> bytes:
    return json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()


def unpack_answer(message: bytes, shared: int, most_bytes: int) -> Decoded:
    """The answer, its pixels copied out of ``shared``; raises the MediaError that it reports.

    Raises ValueError where the answer does not describe what was written.
    """
    content = _content(message)
    pixels = _pixels(content["shape"], shared, 0, most_bytes)
    audio = _audio(content, shared, pixels.nbytes, most_bytes - pixels.nbytes)
    pts = np.array(content["pts"], np.float64)
    frames = Frames(pixels, pts, float(content["duration"]), content["fps"])
    return Decoded(_video(content["video"]), frames, audio)


def unpack_part(message: bytes, shared: int, most_bytes: int) -> StreamPart:
    """The part of a stream, what it holds copied out of ``shared``; raises as ``unpack_answer`` does."""
    content = _content(message)
    if "begin" in content:
        return Begin(**content["begin"])
    if "video" in content:
        audio = _audio(content, shared, content["offset"], most_bytes)
        return End(_video(content["video"]), audio)
    pts, until = np.array(content["pts"], np.float64), float(content["until"])
    pixels, offset = [], content["offset"]
    for shape in content["shapes"]:
        pixels.append(_pixels(shape, shared, offset, most_bytes))
        offset += pixels[-1].nbytes
        if len(pixels[-1]) != len(pts):
            raise ValueError("other times than pixels")
    return Chunk(tuple(pixels), pts, until)


def _content(message: bytes) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(message)
    if "error" in content:
        raise error_from_code(content["error"]["code"], content["error"]["message"])
    return content


def _pixels(said: Sequence[int], shared: int, offset: int, most_bytes: int) -> NDArray[np.uint8]:
    shape = tuple(int(side) for side in said)
    if len(shape) != 4 or min(shape) < 1 or math.prod(shape) > most_bytes:
        raise ValueError("impossible shape")
    return _read(shared, offset, np.dtype(np.uint8), math.prod(shape)).reshape(shape)


def _audio(content: dict[str, Any], shared: int, offset: int, most_bytes: int) -> Audio | None:
    if not content["audio"]:
        return None
    samples = int(content["audio"]["samples"])
    if not 0 <= 4 * samples <= most_bytes:
        raise ValueError("impossible number of samples")
    return Audio(_read(shared, offset, np.dtype(np.float32), samples), content["audio"]["rate"])


def _read(shared: int, offset: int, kind: np.dtype[Any], count: int) -> NDArray[Any]:
    found = np.empty(count, kind)
    left = found.view(np.uint8).data
    while left:
        read = os.preadv(shared, [left], offset)
        if not read:
            raise ValueError("less was written than described")
        left, offset = left[read:], offset + read
    return found


def _video(content: dict[str, Any]) -> Video:
    warnings = tuple(MediaWarning(**warning) for warning in content.pop("warnings"))
    return Video(**content, warnings=warnings)
