"""Stores what is kept of a job beside its record: frames, attention, a very large answer."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from PIL import Image

from app.documents.job import Answer
from app.jobs.blobs import Blobs
from app.jobs.job_store import ANSWER_LIMIT
from extractors.media.request import Decoded

FRAME_SIDE = 480  #: longest side of a kept frame, in pixels
FRAME_QUALITY = 85


def store_result(blobs: Blobs, folder: str, decoded: Decoded, attention: str | None) -> None:
    """Stores the frames and, where there is one, the attention document.

    Args:
        folder: key that they go below, the attempt's own.
        decoded: the video; its frames are those that the captioner saw.
        attention: the document as JSON, or None where it was not asked for.
    """
    for number, pixels in enumerate(decoded.frames.pixels):
        picture = Image.fromarray(pixels)
        picture.thumbnail((FRAME_SIDE, FRAME_SIDE))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=FRAME_QUALITY)
        blobs.write(f"{folder}/frames/{number}.jpg", buffer.getvalue())
    if attention is not None:
        blobs.write(f"{folder}/attention.json", attention.encode())


def record_or_blob(blobs: Blobs, folder: str, answer: Answer) -> Mapping[str, Any]:
    """Stores an answer that is too large for Redis.

    Args:
        folder: key that it goes below, the attempt's own.
        answer: all of it.

    Returns:
        The answer, or its media facts and the key of the blob with all of it.
    """
    record = answer.as_record()
    text = json.dumps(record)
    if len(text) <= ANSWER_LIMIT:
        return record
    key = f"{folder}/answer.json"
    blobs.write(key, text.encode())
    return {"blob": key, "media": record.get("media"), "timings": record.get("timings", {})}


def delete_blobs(blobs: Blobs, job_id: str) -> None:
    """Removes all of a job's blobs, its upload included."""
    blobs.remove(f"uploads/{job_id}")
    blobs.remove(f"results/{job_id}")
