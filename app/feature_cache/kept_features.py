"""Packs what is kept of a video for its next caption: features, facts about the file, and the frames as JPEG.

    mark | sha256 of the rest | length of the head, 8 bytes | head, JSON | frames | streams

The head has the facts, and how long each of the others is. The streams are packed by the engine, which alone
opens them (extractors/video_features/packed_streams.py).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from app.documents.job import Answer

MARK = b"reelword features 1\n"
DIGEST_BYTES, LENGTH_BYTES = 32, 8


class EntryDamaged(Exception):
    """Says that bytes are no entry of the cache, or not all of one."""


@dataclass(frozen=True)
class KeptFeatures:
    """Holds what a caption is written from without opening the video.

    facts: ``media``, ``sampled`` and ``warnings`` of the job's answer. frames: JPEG files of those that the
    captioner saw, as a result keeps them. streams: the features, packed.
    """

    facts: Answer
    frames: tuple[bytes, ...]
    streams: bytes

    @property
    def duration(self) -> float:
        """Seconds of the video."""
        return (self.facts.media.duration if self.facts.media else None) or 0.0

    def pack(self) -> bytes:
        """Makes one entry of it."""
        facts = self.facts.model_dump(mode="json", include={"media", "sampled", "warnings"})
        parts = [*self.frames, self.streams]
        head = json.dumps({"facts": facts, "sizes": [len(part) for part in parts]}).encode()
        rest = b"".join([len(head).to_bytes(LENGTH_BYTES, "big"), head, *parts])
        return MARK + hashlib.sha256(rest).digest() + rest

    @classmethod
    def unpack(cls, data: bytes) -> KeptFeatures:
        """Reads an entry. Raises EntryDamaged for what ``pack`` did not write."""
        start = len(MARK) + DIGEST_BYTES
        rest = memoryview(data)[start:]
        if data[: len(MARK)] != MARK or hashlib.sha256(rest).digest() != data[len(MARK) : start]:
            raise EntryDamaged("The bytes are not those that were written.")
        try:
            end = LENGTH_BYTES + int.from_bytes(rest[:LENGTH_BYTES], "big")
            head = json.loads(bytes(rest[LENGTH_BYTES:end]))
            *frames, streams = _split(rest[end:], head["sizes"])
            return cls(Answer.model_validate(head["facts"]), tuple(frames), streams)
        except (ValueError, KeyError, TypeError, ValidationError) as error:
            raise EntryDamaged("The head means nothing to this version.") from error


def _split(data: memoryview, sizes: Sequence[int]) -> list[bytes]:
    parts, start = [], 0
    for size in sizes:
        parts.append(bytes(data[start : start + size]))
        start += size
    return parts
