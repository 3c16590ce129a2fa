"""Captions the segments of a film as they are cut: decode → segments → caption, a batch at a time.

The film is read once. Captioners that look at frames spread over the time are given those that were held
while the segment was open; others (windows of neighbouring frames, a steady rate, sound) have each finished
segment read once more, by a second decoder that jumps to it.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from app.errors import JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, ignore_progress
from extractors.decoder.decoder import Decoder
from extractors.features import Frames
from extractors.media.errors import NoFrames
from extractors.media.request import Decoded, DecodeRequest, Limits, Video, cut_clip
from extractors.shots.held_frames import most_typical
from extractors.shots.segment import Segment, SegmentFrames, SegmentOptions, SegmentPlan
from extractors.shots.segment_reader import read_segments
from extractors.windows import FRAMES, Sampling

#: Pixels of the frames in which shots are looked for, where the captioner's own are read apart.
SHORT_SIDE = 256


class SegmentEngine(Protocol):
    """Captions the frames of segments, in this process or in one of its own; its models are loaded."""

    @property
    def info(self) -> EngineInfo: ...

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]: ...


@dataclass(frozen=True, eq=False)
class SegmentCaption:
    """Holds one captioned segment."""

    segment: Segment
    answer: EngineAnswer  #: captions and attention, whose clock begins with the segment
    sampled: NDArray[np.float64]  #: (T,), seconds of the film of the frames that were looked at
    frames: NDArray[np.uint8]  #: (T, H, W, 3), those frames
    picture: NDArray[np.uint8]  #: (H, W, 3), the representative one
    film: float  #: seconds of the whole film, as far as is known
    first_picture: float  #: seconds on the clock of players at which the film's first frame is shown


def caption_segments(
    path: Path,
    engine: SegmentEngine,
    options: CaptionOptions,
    segments: SegmentOptions,
    decoder: Decoder,
    *,
    start_after: float = 0.0,
    limits: Limits | None = None,
    batch: int = 4,
    second: Decoder | None = None,
) -> Generator[SegmentCaption, None, Video]:
    """Captions segments in their order, and yields each as soon as its batch is done.

    The first one is captioned by itself and batches grow from there, so that it does not wait for others.

    Args:
        engine: writes captions; its models are loaded.
        decoder: reads the film; nothing else is asked of it until the end.
        start_after: end of the last segment that is known already, in seconds: the same segments follow as
            if the film had been read from its start.
        limits: of decoding. Since each segment is an answer, the film may take ``max_duration`` to be read.
        batch: segments captioned together, at most.
        second: reads finished segments once more, where the captioner needs it; one is started for it
            unless the caller has one that it can kill.

    Returns:
        What the file was like, once all is read.

    Raises:
        MediaError: its leaves; the segments before it stay good.
        JobFailure: why the engine cannot caption.
    """
    limits = limits or Limits()
    options = engine.info.resolve(options.of_segments)
    request = engine.info.request_for(options.choice)
    with closing(Decoder()) as default_second:  # starts no process before it decodes
        source = _FilmReader(path, request, limits, decoder, second or default_second)
        frames = source.segments(segments, start_after)
        return (yield from _captioned(frames, engine, options, batch))


@dataclass(eq=False)
class _FilmReader:
    """Reads a film's segments with the frames that the captioner wants."""

    path: Path
    request: DecodeRequest  #: the captioner's
    limits: Limits  #: of reading a part of the film
    decoder: Decoder  #: reads the film
    second: Decoder  #: reads finished segments once more

    def segments(self, options: SegmentOptions, start: float) -> Generator[SegmentFrames, None, Video]:
        if options.kind in ("auto", "none") and start <= 0:
            decoded = self.decoder.decode(self.path, self.request, self.limits)
            if options.resolved(decoded.video.duration).kind == "none":
                yield _whole(decoded)
                return decoded.video
        # a film that is taken up after its first segment has been cut into shots
        resolved = replace(options, kind="shots") if options.kind == "auto" else options
        try:
            return (yield from self._cut(resolved, start))
        except NoFrames:
            if start <= 0:
                raise
            # nothing is left after the last segment: only what the file is like
            return self.decoder.decode(self.path, DecodeRequest(Sampling(count=1)), self.limits).video

    def _cut(self, options: SegmentOptions, start: float) -> Generator[SegmentFrames, None, Video]:
        plan = SegmentPlan.of(self.request)
        seen = plan or SegmentPlan(FRAMES, SHORT_SIDE)
        limits = replace(self.limits, seconds=max(self.limits.seconds, self.limits.max_duration))
        stream = self.decoder.stream(self.path, seen.stream_request(options, start), limits)
        finished = read_segments(stream, options, seen, start)
        return (yield from (finished if plan is not None else self._read_again(finished)))

    def _read_again(
        self, finished: Generator[SegmentFrames, None, Video]
    ) -> Generator[SegmentFrames, None, Video]:
        """Reads the same segments with frames that are decoded as if each were a film of its own."""
        ended = Ended(finished)
        for each in ended:
            part = (each.segment.start, each.segment.end)
            decoded = self.second.decode(self.path, replace(self.request, part=part), self.limits)
            footage = cut_clip(decoded.footage, *part)
            away = np.abs(footage.pts + each.segment.start - each.segment.representative)
            yield replace(each, footage=footage, picture=int(away.argmin()))
        return ended.value


def _captioned(
    frames: Generator[SegmentFrames, None, Video], engine: SegmentEngine, options: CaptionOptions, batch: int
) -> Generator[SegmentCaption, None, Video]:
    ended = Ended(frames)
    for together in _growing_batches(ended, batch):
        videos = [each.footage for each in together]
        answers = engine.describe_and_caption(videos, [options] * len(videos), ignore_progress)
        for each, answer in zip(together, answers, strict=True):
            if isinstance(answer, JobFailure):
                raise answer
            shown = each.footage.shown_frames
            yield SegmentCaption(
                each.segment,
                answer,
                shown.pts + each.segment.start,
                shown.pixels,
                each.footage.pixels[each.picture],
                each.film,
                each.first_picture,
            )
    return ended.value


Item = TypeVar("Item")


class Ended(Iterator[Item]):
    """Iterates a generator and keeps what it returns as ``value``."""

    value: Video

    def __init__(self, generator: Generator[Item, None, Video]) -> None:
        self._generator = generator

    def __next__(self) -> Item:
        try:
            return next(self._generator)
        except StopIteration as end:
            self.value = end.value
            raise StopIteration from None


def _growing_batches(items: Iterator[Item], most: int) -> Iterator[list[Item]]:
    """Puts one, then two, then four …, up to ``most`` together; the last may be fewer."""
    size, together = 1, []
    for item in items:
        together.append(item)
        if len(together) == size:
            yield together
            size, together = min(2 * size, most), []
    if together:
        yield together


def _whole(decoded: Decoded) -> SegmentFrames:
    """Takes a film that is not cut by the very frames that it is captioned by without segments."""
    footage, video = decoded.footage, decoded.video
    picture = most_typical(footage.pixels)
    segment = Segment(0.0, video.duration, float(footage.pts[picture]))
    return SegmentFrames(segment, footage, picture, video.duration, video.first_picture)
