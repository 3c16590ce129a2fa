"""From a file to the frames that were asked for, with an account of what the file was like.

    index    read every packet's times, decode nothing        extractors/index.py
    look     decode the first frame: size, rotation, depth    extractors/look.py
    choose   which frames are on screen at the asked times    extractors/sampling.py
    read     jump to them, or decode in order                 extractors/reading.py
    report   what was found, lost, missing                    extractors/report.py

The choice is made from the index where that can be trusted; where decoding shows other frames than the
index promised, it is made again from what was shown. Only chosen frames stay in memory, so that two
hours of video cost what ten seconds cost, but for time.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace

import numpy as np

from extractors import errors
from extractors.audio import read_audio
from extractors.features import Frames
from extractors.index import Index, read_index
from extractors.look import Look, look
from extractors.picture import Painter
from extractors.pillow_reader import decode_picture, is_picture
from extractors.reading import (
    Reading,
    Source,
    ends_in_a_picture,
    read_by_seeking,
    read_in_order,
    seek_share,
)
from extractors.report import report
from extractors.request import Audio, Decoded, DecodeRequest, Limits
from extractors.sampling import Sampling
from extractors.timeline import Timeline, timeline_of_index, timeline_of_reading
from extractors.video import MediaWarning

__all__ = ["Audio", "DecodeRequest", "Decoded", "Limits", "Sampling", "decode_here"]

# Above this share of the frames, jumping saves nothing and costs its checks.
SEEK_BELOW = 0.8
# A second reading chooses from what the first one showed; a third allows for one more surprise.
READINGS = 3


def decode_here(
    path: str | os.PathLike[str], request: DecodeRequest | None = None, limits: Limits | None = None
) -> Decoded:
    """Decode in this process. A hostile file may crash native code or hang it: services use ``Decoder``.

    Raises the leaves of ``MediaError`` but those of DecoderError. The limit on memory is the
    decoding process's to keep and is not applied here.
    """
    request, limits = request or DecodeRequest(), limits or Limits()
    if request.sizes:
        raise ValueError("frames in several sizes are decoded by extractors/gathered.py")
    if is_picture(path):
        return decode_picture(path, request, limits)
    source, index, seen = examine(path, request.short_side, limits)
    shot = _shoot(source, seen, index, request, limits)
    video = report(seen, index, shot.reading, shot.timeline)
    audio, warnings = sound_of(source, request.audio_rate, seen, limits)
    warnings += request.shortfall(shot.timeline.times, shot.timeline.duration, len(shot.positions))
    return Decoded(replace(video, warnings=(*video.warnings, *warnings)), _frames(shot), audio)


def examine(
    path: str | os.PathLike[str], short_side: int | None, limits: Limits
) -> tuple[Source, Index, Look]:
    """What can be known of a file before its frames are chosen."""
    source = Source(path, limits.pixels, time.monotonic() + limits.seconds)
    index = read_index(path, max_pixels=limits.pixels, max_frames=limits.max_frames, deadline=source.deadline)
    seen = look(source, short_side)
    index.begin_at(seen.tick)
    if index.open_end and index.trusted and ends_in_a_picture(source, index):
        index.missing = 1
    return source, index, seen


def sound_of(
    source: Source, rate: int | None, seen: Look, limits: Limits
) -> tuple[Audio | None, list[MediaWarning]]:
    """The sound, None where it was not asked for or there is none, and what is wrong with it."""
    if rate is None or seen.sound is None:
        return None, []
    return read_audio(source, rate, seen.zero, limits.audio_seconds)


@dataclass(frozen=True, eq=False)
class _Shot:
    """The wanted pictures (positions, rising) and the clock they are on."""

    reading: Reading
    timeline: Timeline
    positions: list[int]


def _shoot(source: Source, seen: Look, index: Index, request: DecodeRequest, limits: Limits) -> _Shot:
    """Read the wanted frames, choosing again until the choice agrees with what the file shows."""
    timeline = timeline_of_index(index)
    keep_duration(timeline, limits)
    painter = Painter(seen.display)
    wanted = request.choose(timeline.times, timeline.duration).tolist()
    if index.trusted and seek_share(wanted, index) < SEEK_BELOW:
        reading = read_by_seeking(source, painter, wanted, index)
        if reading is not None:
            return _Shot(reading, timeline, wanted)
    for _ in range(READINGS):
        reading = read_in_order(source, painter, frozenset(wanted), index)
        if not reading.complete:
            return _Shot(reading, timeline, wanted)
        timeline = settle(reading, index, limits)
        wanted = request.choose(timeline.times, timeline.duration).tolist()
        if reading.pictures.keys() >= set(wanted):
            return _Shot(reading, timeline, wanted)
    raise errors.TooDamaged("The file shows other frames each time it is decoded.")


def settle(reading: Reading, index: Index, limits: Limits) -> Timeline:
    """The clock of what a whole reading showed, if it showed enough. Raises NoFrames, TooDamaged, TooLong."""
    found = len(reading.ticks)
    if not found:
        raise errors.NoFrames("The picture track shows no frame.")
    if reading.lost > limits.lost_share * (found + reading.lost):
        raise errors.TooDamaged(f"Of {found + reading.lost} frames, {reading.lost} could not be decoded.")
    timeline = timeline_of_reading(reading, index)
    keep_duration(timeline, limits)
    return timeline


def keep_duration(timeline: Timeline, limits: Limits) -> None:
    """Raises TooLong where the limit is passed."""
    if timeline.duration > limits.max_duration:
        raise errors.TooLong(
            f"The video lasts {timeline.duration:.0f} seconds, and {limits.max_duration:.0f} are allowed."
        )


def _frames(shot: _Shot) -> Frames:
    pixels = np.stack([shot.reading.pictures[position] for position in shot.positions])
    times, duration = shot.timeline.times, shot.timeline.duration
    return Frames(pixels, times[shot.positions], duration, len(times) / duration)
