"""Writes what an attempt has found out to the blobs, and removes what a job needs no more."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from PIL import Image

from app.jobs.blobs import Blobs
from app.jobs.job_store import ANSWER_LIMIT

FRAME_SIDE = 480  #: longest side of a kept frame, in pixels
FRAME_QUALITY = 85
log = structlog.get_logger(__name__)


def frame_jpeg(pixels: NDArray[np.uint8]) -> bytes:
    """Makes a JPEG of a frame uint8 (H, W, 3), made smaller where it is large."""
    picture = Image.fromarray(pixels)
    picture.thumbnail((FRAME_SIDE, FRAME_SIDE))
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=FRAME_QUALITY)
    return buffer.getvalue()


def remove_blob(blobs: Blobs, key: str) -> None:
    """Removes what nobody needs any more; what the store refuses now is left to the sweeps."""
    try:
        blobs.remove(key)
    except Exception:
        log.exception("a blob that nobody needs could not be removed", key=key)


def store_result(blobs: Blobs, folder: str, frames: Sequence[bytes], attention: str | None) -> None:
    """Stores the frames and, where there is one, the attention document.

    Args:
        blobs: where files of jobs lie.
        folder: key that they go below, the attempt's own.
        frames: JPEG files of those that the captioner saw.
        attention: the document as JSON, None where it was not asked for.
    """
    files = {f"{folder}/frames/{number}.jpg": frame for number, frame in enumerate(frames)}
    if attention is not None:
        files[f"{folder}/attention.json"] = attention.encode()
    blobs.write_all(files)


def store_large_answer(blobs: Blobs, folder: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Stores an answer that is too large for Redis as a blob.

    Args:
        blobs: where files of jobs lie.
        folder: key that it goes below, the attempt's own.
        record: all of it.

    Returns:
        What goes on the record: the answer, or its media facts and the key of the blob.
    """
    text = json.dumps(record)
    if len(text) <= ANSWER_LIMIT:
        return record
    key = f"{folder}/answer.json"
    blobs.write(key, text.encode())
    kept = {name: record[name] for name in ("media", "segments") if record.get(name) is not None}
    return {"blob": key, "timings": record.get("timings", {}), **kept}


def delete_blobs(blobs: Blobs, job_id: str) -> None:
    """Removes all of a job's blobs, its upload included."""
    blobs.remove(f"uploads/{job_id}")
    blobs.remove(f"results/{job_id}")
