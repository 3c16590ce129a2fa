"""What is kept of a job beside its record: the frames that were used, the attention, a very large answer."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from PIL import Image

from app.answer import Answer
from app.blobs import Blobs
from app.jobs import ANSWER_LIMIT
from extractors.request import Decoded

FRAME_SIDE = 480  #: longest side of a kept frame, in pixels
FRAME_QUALITY = 85


def media_answer(decoded: Decoded, decode_seconds: float) -> dict[str, Any]:
    """The part of a job's answer that is known after decoding."""
    return {
        "media": decoded.video.media(),
        "sampled": [round(float(seconds), 4) for seconds in decoded.frames.pts],
        "warnings": [{"code": w.code, "message": w.message} for w in decoded.video.warnings],
        "timings": {"decode": round(decode_seconds, 4)},
    }


def whole_answer(known: Mapping[str, Any], answer: Answer) -> dict[str, Any]:
    """All of a job's answer but its attention."""
    return {
        **known,
        "caption": answer.captions[0]["text"],
        "captions": answer.captions,
        "model": answer.model,
        "timings": {**known["timings"], **{name: round(s, 4) for name, s in answer.timings.items()}},
    }


def keep(blobs: Blobs, job_id: str, decoded: Decoded, attention: Mapping[str, Any] | None) -> None:
    """Stores the frames and, where there is one, the attention document."""
    for number, pixels in enumerate(decoded.frames.pixels):
        picture = Image.fromarray(pixels)
        picture.thumbnail((FRAME_SIDE, FRAME_SIDE))
        buffer = io.BytesIO()
        picture.save(buffer, "JPEG", quality=FRAME_QUALITY)
        blobs.write(f"results/{job_id}/frames/{number}.jpg", buffer.getvalue())
    if attention is not None:
        blobs.write(f"results/{job_id}/attention.json", json.dumps(attention).encode())


def fit_record(blobs: Blobs, job_id: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer; where it is too large for Redis, its media facts and the key of the blob with all of it."""
    text = json.dumps(answer)
    if len(text) <= ANSWER_LIMIT:
        return answer
    key = f"results/{job_id}/answer.json"
    blobs.write(key, text.encode())
    return {"blob": key, "media": answer.get("media"), "timings": answer.get("timings", {})}


def forget(blobs: Blobs, job_id: str) -> None:
    """Removes all of a job's blobs, its upload included."""
    blobs.remove(f"uploads/{job_id}")
    blobs.remove(f"results/{job_id}")
