"""Reads from a command line's words how films are cut into segments."""

from __future__ import annotations

from app.errors import UsageError, sentence
from extractors.shots.segment import SegmentOptions


def segment_options(text: str, shortest: float = 2.0, longest: float = 20.0) -> SegmentOptions:
    """Reads how films are cut.

    Args:
        text: ``shots``, ``none``, ``auto`` or seconds.
        shortest: seconds; a cut sooner than that after the last one is passed over.
        longest: seconds; a longer shot is cut there.

    Raises:
        UsageError: the words mean nothing.
    """
    try:
        return SegmentOptions.parse(text, shortest, longest)
    except ValueError as error:
        raise UsageError(sentence(str(error))) from error
