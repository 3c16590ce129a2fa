"""From a file to a stream of frames: decode.py's way, but the frames leave as they come.

What is chosen from the index is handed over at once. Where the file then shows other frames than its index
promised, the rest is read without handing anything over, the choice is made again from what was shown, and
the frames come again from the first, behind a second ``Begin``. An index that cannot be trusted from the
start is replaced by a first reading of the whole, so that nothing is said twice.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from av.video.frame import VideoFrame

from extractors import errors
from extractors.decode import READINGS, SEEK_BELOW, examine, keep_duration, settle, sound_of
from extractors.index import Index
from extractors.look import Look
from extractors.picture import Painter
from extractors.pillow_reader import is_picture, stream_picture
from extractors.reading import JumpMissed, Reading, Source, by_jumps, in_order, read_in_order, seek_share
from extractors.report import report
from extractors.request import Limits, counted, fewer_frames
from extractors.streamed import Begin, End, Sizes, StreamPart, StreamRequest, chunked
from extractors.timeline import Timeline, timeline_of_index
from extractors.video import MediaWarning


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
        self, source: Source, index: Index, seen: Look, request: StreamRequest, limits: Limits
    ) -> None:
        self._source, self._index, self._request, self._limits = source, index, request, limits
        self._painters = [Painter(seen.display.at(side)) for side in request.short_sides]
        self.reading = Reading()
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
        self.reading, wanted = Reading(), self._wanted()
        jumps = by_jumps(self._source, self._paint, wanted, self._index, self.reading)
        yield from self._handed_over((picture for _, picture in jumps), wanted)

    def _in_order(self, by_index: bool) -> Iterator[StreamPart]:
        """by_index: the choice was made from the index, and is void as soon as the frames leave it."""
        reading, wanted = Reading(), self._wanted()
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
