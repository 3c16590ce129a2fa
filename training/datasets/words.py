"""Splits captions into words."""

from __future__ import annotations

import re

WORD = re.compile(r"[a-z0-9]+|'(?:s|re|ve|ll|d|m|t)\b")


def words_of(caption: str) -> list[str]:
    """Lower-case words without punctuation, ``man's`` as ``man 's``, like the COCO code's tokens."""
    return WORD.findall(caption.lower())
