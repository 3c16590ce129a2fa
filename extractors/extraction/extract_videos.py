"""From video files to their features: each file is decoded once, whatever is to be said of it.

The decoder hands over frames in chunks while the networks look at those before; the next file's first
chunks are decoded meanwhile where a second decoder is given. Windows of several files share a batch. What is
held does not grow with a file's length, but for its sound (which has a limit of its own) and its rows.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.decoder.decoder import Decoder
from extractors.extraction.extractor_group import ExtractorGroup
from extractors.extractor import AnyExtractor
from extractors.features import Stream
from extractors.media.chunks import Begin, Chunk, End, StreamPart, StreamRequest
from extractors.media.errors import MediaError
from extractors.media.request import Limits
from extractors.media.video import Video
from extractors.preprocessing.images import to_device
from extractors.windowing.batching import Batcher, PendingRows, WindowCutter
from extractors.windowing.window_extractor import WindowExtractor

Progress: TypeAlias = Callable[[Path, float], None]


@dataclass(frozen=True, eq=False)
class ExtractedVideo:
    """What is known of one video.

    streams: by name, on one clock. sampled: float64 (T,), seconds of the frames that were looked at.
    decode_seconds: spent waiting for the decoder. extract_seconds: spent on the frames and the sound, of
    batches its share.
    """

    video: Video
    streams: dict[str, Stream]
    sampled: NDArray[np.float64]
    decode_seconds: float
    extract_seconds: float


def extract_video(
    decoder: Decoder,
    path: str | os.PathLike[str],
    extractors: Sequence[AnyExtractor],
    limits: Limits | None = None,
) -> ExtractedVideo:
    """All streams of one file, by one reading of it.

    Raises any leaf of ``MediaError``, what a network raises, and ValueError where the extractors do not
    make a whole (see ``ExtractorGroup``).
    """
    [(_, outcome)] = extract_videos([decoder], [path], extractors, limits)
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def extract_videos(
    decoders: Sequence[Decoder],
    paths: Iterable[str | os.PathLike[str]],
    extractors: Sequence[AnyExtractor],
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Iterator[tuple[Path, ExtractedVideo | Exception]]:
    """Every file, in its turn, with what is known of it or why that is nothing.

    decoders: with two or more, the next files are decoded ahead. progress: is told the share of a file that
    has been looked at. Raises ValueError where the extractors do not make a whole.
    """
    group = ExtractorGroup(extractors)
    batchers = [Batcher(extractor) for extractor in group.frames]
    unfinished: deque[_File] = deque()
    for path, parts in _opened(decoders, paths, group.request(), limits or Limits()):
        file = _File(path, group, batchers, progress or _ignore_progress)
        file.read(parts)
        unfinished.append(file)
        while unfinished and unfinished[0].complete:
            yield unfinished.popleft().outcome()
    for batcher in batchers:
        batcher.flush()
    for file in unfinished:
        yield file.outcome()


def _opened(
    decoders: Sequence[Decoder],
    paths: Iterable[str | os.PathLike[str]],
    request: StreamRequest,
    limits: Limits,
) -> Iterator[tuple[Path, Iterator[StreamPart]]]:
    """Each file with its parts, those that follow being opened already as far as there are decoders."""
    waiting: deque[tuple[Path, Iterator[StreamPart]]] = deque()
    for path, decoder in zip(paths, cycle(decoders)):
        try:
            parts = decoder.stream(path, request, limits)
        except MediaError as error:
            parts = map(_raised, [error])
        waiting.append((Path(path), parts))
        if len(waiting) == len(decoders):
            yield waiting.popleft()
    yield from waiting


def _raised(error: MediaError) -> StreamPart:
    raise error


@dataclass(eq=False)
class _File:
    """One file on its way through the networks."""

    path: Path
    group: ExtractorGroup
    batchers: Sequence[Batcher]
    progress: Progress
    error: Exception | None = None
    _stackers: list[WindowCutter] = field(default_factory=list)
    _tickets: list[PendingRows] = field(default_factory=list)
    _sampled: list[NDArray[np.float64]] = field(default_factory=list)
    _duration: float = 0.0
    _video: Video | None = None
    _sound: dict[str, Stream] = field(default_factory=dict)
    _waited: float = 0.0
    _worked: float = 0.0

    @property
    def complete(self) -> bool:
        return self.error is not None or all(ticket.complete for ticket in self._tickets)

    def outcome(self) -> tuple[Path, ExtractedVideo | Exception]:
        """Once complete; the derived streams are made now."""
        try:
            return self.path, self._described()
        except Exception as error:
            return self.path, error

    def read(self, parts: Iterator[StreamPart]) -> None:
        """Take in all parts; what goes wrong is kept as ``error``."""
        try:
            for part in self._timed(parts):
                if isinstance(part, Begin):
                    self._begin(part)
                elif isinstance(part, Chunk):
                    self._extract_windows(part)
                else:
                    self._end(part)
        except Exception as error:
            self.error = error
            self._forget()

    def _timed(self, parts: Iterator[StreamPart]) -> Iterator[StreamPart]:
        while True:
            asked = time.perf_counter()
            part = next(parts, None)
            given = time.perf_counter()
            self._waited += given - asked
            if part is None:
                return
            described = self._describing()
            yield part
            # what batches took is shared among the videos in them
            self._worked += time.perf_counter() - given - (self._describing() - described)

    def _describing(self) -> float:
        return sum(batcher.seconds for batcher in self.batchers)

    def _begin(self, begin: Begin) -> None:
        """Start, or start again: the file turned out to show other frames than it promised."""
        self._forget()
        cuts = [extractor.windows.cut(begin.duration, begin.fps) for extractor in self.group.frames]
        pairs = list(zip(self.group.frames, cuts, strict=True))
        self._stackers = [WindowCutter(extractor, cut) for extractor, cut in pairs]
        self._tickets = [PendingRows(extractor, cut) for extractor, cut in pairs]
        self._sampled, self._duration = [], begin.duration

    def _forget(self) -> None:
        for batcher, ticket in zip(self.batchers, self._tickets, strict=False):
            batcher.forget(ticket)

    def _extract_windows(self, chunk: Chunk) -> None:
        self._sampled.append(chunk.pts)
        pixels = _Pixels(dict(zip(self.group.request().short_sides, chunk.pixels, strict=True)))
        for batcher, stacker, ticket in zip(self.batchers, self._stackers, self._tickets, strict=True):
            frames = pixels.of(batcher.extractor)
            ticket.view = batcher.extractor.view(*frames.shape[1:3])
            for stack in stacker.push(frames, chunk.pts, chunk.until):
                batcher.add(stack, ticket)
            if ticket.error is not None:
                raise ticket.error
        self.progress(self.path, min(1.0, chunk.until / self._duration))

    def _end(self, end: End) -> None:
        self._video = end.video
        for extractor in self.group.sound:
            self._sound.update(extractor.describe(end.audio, end.video.duration))

    def _described(self) -> ExtractedVideo:
        if self.error is not None:
            raise self.error
        assert self._video is not None
        began = time.perf_counter()
        streams = dict(self._sound)
        for ticket in self._tickets:
            streams.update(ticket.streams())
        self.group.derive(streams)
        sampled = np.concatenate([np.zeros(0), *self._sampled])
        worked = self._worked + time.perf_counter() - began + sum(ticket.seconds for ticket in self._tickets)
        return ExtractedVideo(self._video, streams, sampled, self._waited, worked)


class _Pixels:
    """The frames of one chunk by their short side, each size taken to a device once."""

    def __init__(self, sizes: Mapping[int | None, NDArray[np.uint8]]) -> None:
        self._sizes = sizes
        self._there: dict[tuple[int | None, torch.device], Tensor] = {}

    def of(self, extractor: WindowExtractor) -> Tensor:
        side, device = extractor.short_side, extractor.device
        if (side, device) not in self._there:
            self._there[side, device] = to_device(self._sizes[side], device)
        return self._there[side, device]


def _ignore_progress(path: Path, share: float) -> None:
    """Progress that nobody asked for."""
