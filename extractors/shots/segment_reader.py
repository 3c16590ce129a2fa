"""From a decoder's stream to finished segments with their frames, as the film goes by.

    CutDetector    which frames begin a shot                     extractors/shots/cut_detector.py
    Segmenter      where segments begin and end                  below
    HeldFrames     the frames of what is still open              extractors/shots/held_frames.py

The file is read once, and what is held does not grow with it: the frames of the open segment, of the one that
may follow it, and the decoder's chunk.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from extractors.features import Footage
from extractors.media.request import Video
from extractors.media.stream_parts import FrameChunk, StreamPart, StreamStart
from extractors.shots.cut_detector import CutDetector, JudgedFrame
from extractors.shots.held_frames import HeldFrames, most_typical
from extractors.shots.segment import Segment, SegmentFrames, SegmentOptions, SegmentPlan
from extractors.windows import TICK, Sampling

#: Frames held for each that a captioner looks at: so near to the middle of its part lies the nearest one.
HELD_PER_FRAME = 8


def read_segments(
    parts: Iterable[StreamPart], options: SegmentOptions, plan: SegmentPlan, start: float = 0.0
) -> Generator[SegmentFrames, None, Video]:
    """Segments as they end, from a stream that ``SegmentPlan.stream_request`` asked for.

    Where the stream begins again, because the file shows other frames than its index promised, what was
    handed over stays, and the rest is cut anew from there.

    Args:
        parts: of ``Decoder.stream``.
        options: how the film is cut, "auto" resolved.
        plan: which frames of a segment are wanted.
        start: seconds of the film at which the first segment begins.

    Returns:
        What the file was like, once all is read.

    Raises:
        MediaError: its leaves, as the stream raises them.
    """
    reader: _Reader | None = None
    for part in parts:
        if isinstance(part, StreamStart):
            reader = _Reader(Segmenter(options, plan, start, part), options)
            continue
        assert reader is not None, "a stream starts with a StreamStart"
        ended = reader.read(part) if isinstance(part, FrameChunk) else reader.finish(part.video.duration)
        for finished in ended:
            start = finished.segment.end
            yield finished
        if not isinstance(part, FrameChunk):
            return part.video
    raise AssertionError("a stream ends in an StreamEnd or an error")


class _Reader:
    """Hands the frames of chunks to the detector, where shots are looked for, and on to the segmenter."""

    def __init__(self, segmenter: "Segmenter", options: SegmentOptions) -> None:
        self._segmenter, self._start = segmenter, segmenter.start
        self._detector = CutDetector() if options.kind == "shots" else None

    def read(self, chunk: FrameChunk) -> Iterator[SegmentFrames]:
        next_times = np.append(chunk.pts[1:], chunk.until)
        for time, next_time, pixels in zip(chunk.pts, next_times, chunk.pixels[0], strict=True):
            if next_time <= self._start:
                continue  # a stream that has begun again goes through what was handed over
            for judged in self._judged(max(float(time), self._start), pixels):
                yield from self._segmenter.take(judged)

    def finish(self, duration: float) -> Iterator[SegmentFrames]:
        if self._detector is not None:
            for judged in self._detector.finish(duration):
                yield from self._segmenter.take(judged)
        yield from self._segmenter.finish(duration)

    def _judged(self, time: float, pixels: NDArray[np.uint8]) -> Iterable[JudgedFrame]:
        if self._detector is None:
            return [JudgedFrame(time, pixels, is_cut=False)]
        return self._detector.push(time, pixels)


@dataclass(eq=False)
class _Open:
    """A segment whose end is not known. forced: whether it begins where the one before grew too long."""

    start: float
    held: HeldFrames
    forced: bool = False


@dataclass(eq=False)
class Segmenter:
    """Decides where segments end. A cut ends the open segment once what follows it has lasted long enough.

    A cut sooner than ``options.shortest`` after the last one is passed over, so that no segment is shorter.
    start: seconds at which the open segment begins.
    """

    options: SegmentOptions
    plan: SegmentPlan
    start: float
    begin: StreamStart
    _open: _Open = field(init=False)
    _next: _Open | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._open = self._opened(self.start)

    def take(self, frame: JudgedFrame) -> Iterator[SegmentFrames]:
        """Yields the segments that are finished now that this frame, later than those before, is known."""
        # only now: had the film ended sooner, what follows the cut would have been too short to stand alone
        if self._next is not None and frame.time >= self._next.start + self.options.shortest:
            yield from self._end_at(self._next.start)
        if frame.is_cut:
            self._cut(frame.time)
        elif self._next is None and frame.time >= self._open.start + self.options.longest:
            self._force(frame.time)
        (self._next or self._open).held.add(frame.time, frame.pixels)

    def finish(self, duration: float) -> Iterator[SegmentFrames]:
        """Returns what is left, up to the end of the film."""
        if self._next is not None and duration >= self._next.start + self.options.shortest:
            yield from self._end_at(self._next.start)
        self._give_up_next()
        if len(self._open.held) and duration > self._open.start + TICK:
            yield self._finished(self._open, duration)

    def _cut(self, time: float) -> None:
        if self._next is None:
            if time >= self._open.start + self.options.shortest:
                self._next = self._opened(time)
        elif self._next.forced:  # a real cut follows so soon that there was no need of one
            self._give_up_next()
            self._next = self._opened(time)

    def _force(self, time: float) -> None:
        due = self._open.start + self.options.longest
        late = time - due >= self.options.shortest  # nothing was shown meanwhile: no frames for a segment
        self._next = self._opened(time if late else due, forced=True)

    def _end_at(self, end: float) -> Iterator[SegmentFrames]:
        assert self._next is not None
        ended, self._open, self._next = self._open, self._next, None
        yield self._finished(ended, end)

    def _give_up_next(self) -> None:
        if self._next is not None:
            self._open.held.join(self._next.held)
            self._next = None

    def _opened(self, start: float, forced: bool = False) -> _Open:
        return _Open(start, HeldFrames(HELD_PER_FRAME * self.plan.count), forced)

    def _finished(self, done: _Open, end: float) -> SegmentFrames:
        """Makes the segment, with those of its frames that are nearest to where a clip's frames are taken."""
        duration = end - done.start
        instants = done.start + Sampling(self.plan.count).instants(duration)
        times, pixels = done.held.take(done.held.nearest(instants))
        picture = most_typical(pixels)
        sized = {size: size.shrink(pixels) for size in self.plan.sizes}
        since = np.maximum(times - done.start, 0.0)
        footage = Footage(pixels, since, duration, self.begin.fps, None, sized)
        segment = Segment(done.start, end, float(times[picture]))
        film, zero = max(self.begin.duration, end), self.begin.first_picture
        return SegmentFrames(segment, footage, picture, film, zero)
