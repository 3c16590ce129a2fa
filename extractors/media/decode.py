"""From a file to the frames that were asked for, with an account of what the file was like.

    index    read every packet's times, decode nothing        extractors/media/containers/packet_index.py
    look     decode the first frame: size, rotation, depth    extractors/media/probe.py
    choose   which frames are on screen at the asked times    extractors/sampling.py
    read     jump to them, or decode in order                 extractors/media/frame_reader.py
    report   what was found, lost, missing                    extractors/media/report.py

The choice is made from the index where that can be trusted; where decoding shows other frames than the
index promised, it is made again from what was shown. Only chosen frames stay in memory, so that two
hours of video cost what ten seconds cost, but for time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from av.video.frame import VideoFrame

from extractors.features import Audio, Frames
from extractors.media import errors
from extractors.media.audio import read_audio
from extractors.media.chunks import Begin, End, Sizes, StreamPart, StreamRequest, chunked
from extractors.media.containers.packet_index import PacketIndex, read_index
from extractors.media.display import FrameConverter
from extractors.media.frame_reader import (
    DecodePass,
    JumpMissed,
    MediaSource,
    by_jumps,
    ends_in_a_picture,
    in_order,
    read_by_seeking,
    read_in_order,
    seek_share,
)
from extractors.media.probe import Probe, probe_media
from extractors.media.report import report
from extractors.media.request import Decoded, DecodeRequest, Limits, counted, fewer_frames
from extractors.media.stills.pillow import decode_picture, is_picture, stream_picture
from extractors.media.timeline import Timeline, timeline_of_index, timeline_of_reading
from extractors.media.video import MediaWarning
from extractors.sampling import Sampling

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
        raise ValueError("frames in several sizes are decoded by extractors/media/gathered.py")
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
) -> tuple[MediaSource, PacketIndex, Probe]:
    """What can be known of a file before its frames are chosen."""
    source = MediaSource(path, limits.pixels, time.monotonic() + limits.seconds)
    index = read_index(path, max_pixels=limits.pixels, max_frames=limits.max_frames, deadline=source.deadline)
    seen = probe_media(source, short_side)
    index.begin_at(seen.tick)
    if index.open_end and index.trusted and ends_in_a_picture(source, index):
        index.missing = 1
    return source, index, seen


def sound_of(
    source: MediaSource, rate: int | None, seen: Probe, limits: Limits
) -> tuple[Audio | None, list[MediaWarning]]:
    """The sound, None where it was not asked for or there is none, and what is wrong with it."""
    if rate is None or seen.sound is None:
        return None, []
    return read_audio(source, rate, seen.zero, limits.audio_seconds)


@dataclass(frozen=True, eq=False)
class _Shot:
    """The wanted pictures (positions, rising) and the clock they are on."""

    reading: DecodePass
    timeline: Timeline
    positions: list[int]


def _shoot(
    source: MediaSource, seen: Probe, index: PacketIndex, request: DecodeRequest, limits: Limits
) -> _Shot:
    """Read the wanted frames, choosing again until the choice agrees with what the file shows."""
    timeline = timeline_of_index(index)
    keep_duration(timeline, limits)
    painter = FrameConverter(seen.display)
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


def settle(reading: DecodePass, index: PacketIndex, limits: Limits) -> Timeline:
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


# From a file to a stream of frames: decode.py's way, but the frames leave as they come.
#
# What is chosen from the index is handed over at once. Where the file then shows other frames than its index
# promised, the rest is read without handing anything over, the choice is made again from what was shown, and
# the frames come again from the first, behind a second ``Begin``. An index that cannot be trusted from the
# start is replaced by a first reading of the whole, so that nothing is said twice.


def stream_here(
    path: str | os.PathLike[str], request: StreamRequest, limits: Limits | None = None
) -> Iterator[StreamPart]:
    """Decode in this process, as the parts are asked for; services use ``Decoder.stream``.

    The limit in seconds does not count the time between one part and the asking for the next. Raises the
    leaves of ``MediaError`` but those of DecoderError, at any part.
    """
    limits = limits or Limits()
    if is_picture(path):
        yield from stream_picture(path, request, limits)
        return
    source, index, seen = examine(path, None, limits)
    reader = _StreamReader(source, index, seen, request, limits)
    for part in reader.parts():
        handed_over = time.monotonic()
        yield part
        source.deadline += time.monotonic() - handed_over
    video = report(seen, index, reader.reading, reader.timeline)
    audio, warnings = sound_of(source, request.audio_rate, seen, limits)
    warnings += reader.shortfall()
    yield End(replace(video, warnings=(*video.warnings, *warnings)), audio)


class _StreamReader:
    """Readings of one file until one holds to its own choice; ``reading`` and ``timeline`` are the last's."""

    def __init__(
        self, source: MediaSource, index: PacketIndex, seen: Probe, request: StreamRequest, limits: Limits
    ) -> None:
        self._source, self._index, self._request, self._limits = source, index, request, limits
        self._painters = [FrameConverter(seen.display.at(side)) for side in request.short_sides]
        self.reading = DecodePass()
        self.timeline = timeline_of_index(index)
        keep_duration(self.timeline, limits)

    def parts(self) -> Iterator[StreamPart]:
        """Raises TooDamaged where the file shows other frames each time."""
        if not self._index.trusted:
            self.timeline = self._counted()
        elif seek_share(self._wanted(), self._index) < SEEK_BELOW:
            try:
                yield from self._by_jumps()
            except JumpMissed:
                pass
            else:
                return
        for turn in range(READINGS):
            yield from self._in_order(by_index=self._index.trusted and turn == 0)
            if not self.reading.complete:
                return
            promised, self.timeline = self.timeline, settle(self.reading, self._index, self._limits)
            if _same(promised, self.timeline):
                return
        raise errors.TooDamaged("The file shows other frames each time it is decoded.")

    def shortfall(self) -> list[MediaWarning]:
        """A warning where fewer frames were handed over than asked for, from a file that has more."""
        duration, frames = self.timeline.duration, len(self.timeline)
        asked = counted(self._request.windows, duration, frames / duration)
        return fewer_frames(asked, len(self._wanted()), frames)

    def _counted(self) -> Timeline:
        reading = read_in_order(self._source, self._painters[0], (), self._index)
        return settle(reading, self._index, self._limits)

    def _by_jumps(self) -> Iterator[StreamPart]:
        self.reading, wanted = DecodePass(), self._wanted()
        jumps = by_jumps(self._source, self._paint, wanted, self._index, self.reading)
        yield from self._handed_over((picture for _, picture in jumps), wanted)

    def _in_order(self, by_index: bool) -> Iterator[StreamPart]:
        """by_index: the choice was made from the index, and is void as soon as the frames leave it."""
        reading, wanted = DecodePass(), self._wanted()
        self.reading = reading
        shown = in_order(self._source, self._paint, frozenset(wanted), self._index, reading)
        pictures = (picture for _, picture in shown if reading.agrees or not by_index)
        yield from self._handed_over(pictures, wanted)

    def _paint(self, frame: VideoFrame) -> Sizes:
        return tuple(painter.pixels(frame) for painter in self._painters)

    def _handed_over(self, pictures: Iterator[Sizes], wanted: list[int]) -> Iterator[StreamPart]:
        duration = self.timeline.duration
        yield Begin(duration, len(self.timeline) / duration)
        yield from chunked(pictures, self.timeline.times[wanted], self._request.chunk_bytes)

    def _wanted(self) -> list[int]:
        positions: list[int] = self._request.choose(self.timeline.times, self.timeline.duration).tolist()
        return positions


def _same(promised: Timeline, found: Timeline) -> bool:
    return promised.duration == found.duration and np.array_equal(promised.times, found.times)
