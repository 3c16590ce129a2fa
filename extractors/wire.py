"""The language of a decoder and its parent: lines of JSON, and pixels in a shared file beside them.

JSON and not pickle, because the child reads hostile files: whatever it has become, it can answer wrong
values but cannot make its parent run code.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from typing import Any

import numpy as np

from extractors.errors import MediaError, error_from_code
from extractors.features import Frames
from extractors.request import Audio, Decoded, DecodeRequest, Limits
from extractors.sampling import Sampling
from extractors.video import MediaWarning, Video

LONGEST_MESSAGE = 16 << 20  # times of two million frames never travel, those of the sampled ones do


def pack_request(path: str, request: DecodeRequest, limits: Limits) -> bytes:
    # a path is bytes to the system: surrogates stand for those that are no UTF-8, and JSON escapes them
    return json.dumps({"path": path, "request": asdict(request), "limits": asdict(limits)}).encode()


def unpack_request(message: bytes) -> tuple[str, DecodeRequest, Limits]:
    content = json.loads(message)
    asked = content["request"]
    request = DecodeRequest(Sampling(**asked.pop("sampling")), **asked)
    return content["path"], request, Limits(**content["limits"])


def pack_answer(decoded: Decoded, shared: int) -> bytes:
    """Write pixels and samples to the file ``shared`` and describe them."""
    frames, audio = decoded.frames, decoded.audio
    os.ftruncate(shared, 0)
    with open(shared, "wb", closefd=False) as file:
        file.seek(0)
        frames.pixels.tofile(file)
        if audio is not None:
            audio.samples.tofile(file)
    content = {
        "video": asdict(decoded.video),
        "shape": frames.pixels.shape,
        "pts": frames.pts.tolist(),
        "duration": frames.duration,
        "audio": None if audio is None else {"samples": len(audio.samples), "rate": audio.rate},
    }
    return json.dumps(content).encode()


def pack_error(error: MediaError) -> bytes:
    return json.dumps({"error": {"code": error.code, "message": str(error)}}).encode()


def unpack_answer(message: bytes, shared: int, most_bytes: int) -> Decoded:
    """The answer, its pixels copied out of ``shared``; raises the MediaError that it reports.

    Raises ValueError where the answer does not describe what was written.
    """
    content = json.loads(message)
    if "error" in content:
        raise error_from_code(content["error"]["code"], content["error"]["message"])
    shape = tuple(int(side) for side in content["shape"])
    samples = content["audio"]["samples"] if content["audio"] else 0
    if len(shape) != 4 or min(*shape, samples + 1) < 1 or int(np.prod(shape)) + 4 * samples > most_bytes:
        raise ValueError("impossible shape")
    with open(shared, "rb", closefd=False) as file:
        file.seek(0)
        pixels = np.fromfile(file, np.uint8, int(np.prod(shape))).reshape(shape)
        sound = np.fromfile(file, np.float32, samples)
    if len(sound) != samples:
        raise ValueError("fewer samples than described")
    pts = np.array(content["pts"], np.float64)
    audio = Audio(sound, content["audio"]["rate"]) if content["audio"] else None
    return Decoded(_video(content["video"]), Frames(pixels, pts, float(content["duration"])), audio)


def _video(content: dict[str, Any]) -> Video:
    warnings = tuple(MediaWarning(**warning) for warning in content.pop("warnings"))
    return Video(**content, warnings=warnings)
