"""Builds the answer of a job: what is known after decoding, and the whole of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.pipeline.engine_protocol import EngineAnswer
from extractors.media.request import Decoded


def media_answer(decoded: Decoded, decode_seconds: float) -> dict[str, Any]:
    """The part of a job's answer that is known after decoding."""
    return {
        "media": decoded.video.media(),
        "sampled": [round(float(seconds), 4) for seconds in decoded.frames.pts],
        "warnings": [{"code": w.code, "message": w.message} for w in decoded.video.warnings],
        "timings": {"decode": round(decode_seconds, 4)},
    }


def whole_answer(known: Mapping[str, Any], answer: EngineAnswer) -> dict[str, Any]:
    """All of a job's answer but its attention."""
    return {
        **known,
        "caption": answer.captions[0]["text"],
        "captions": answer.captions,
        "model": answer.model,
        "timings": {**known["timings"], **{name: round(s, 4) for name, s in answer.timings.items()}},
    }
