"""Extracts the features of video files: each file is decoded once, however many extractors look at it.

The decoder hands over frames in chunks while the networks look at those before; the next file's first
chunks are decoded meanwhile where a second decoder is given. Windows of several files share a batch. What is
held does not grow with a file's length, but for its sound (which has a limit of its own) and its rows.
"""

import os
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from extractors.decoder.decoder import Decoder
from extractors.extractor import AnyExtractor, DerivedExtractor, SoundExtractor
from extractors.features import FrameSize, Stream
from extractors.media.errors import MediaError
from extractors.media.request import DecodeRequest, Limits, Video
from extractors.media.stream_parts import FrameChunk, StreamPart, StreamStart
from extractors.preprocessing.images import to_device
from extractors.windowing.batching import Batcher, PendingRows, WindowCutter
from extractors.windowing.window_extractor import WindowExtractor


class ExtractorGroup:
    """Raises ValueError where there is none, two have one name, or one needs what no decoder gives."""

    def __init__(self, extractors: Sequence[AnyExtractor]) -> None:
        self.frames: list[WindowExtractor] = []
        self.sound: list[SoundExtractor] = []
        self.derived: list[DerivedExtractor] = []
        for extractor in extractors:
            if isinstance(extractor, WindowExtractor):
                self.frames.append(extractor)
            elif "audio" in extractor.needs:
                self.sound.append(extractor)  # type: ignore[arg-type]
            elif "streams" in extractor.needs:
                self.derived.append(extractor)  # type: ignore[arg-type]
            else:
                needs = set(extractor.needs)
                raise ValueError(f"{extractor.name} cannot be fed by a decoder: it needs {needs}")
        counts = Counter(extractor.name for extractor in extractors)
        twice = [name for name, count in counts.items() if count > 1]
        if twice or not counts:
            raise ValueError(f"extractors given twice: {', '.join(twice)}" if twice else "no extractor given")

    def request(self) -> DecodeRequest:
        """Requests every frame that any extractor looks at, in the sizes that they want, and the sound."""
        return DecodeRequest(
            sampling=None,
            short_side=None,
            audio_rate=max((extractor.rate for extractor in self.sound), default=None),
            windows=tuple(dict.fromkeys(extractor.windows for extractor in self.frames)),
            sizes=tuple(dict.fromkeys(streamed_size(extractor) for extractor in self.frames)),
        )

    def derive(self, streams: dict[str, Stream]) -> None:
        """Adds the derived streams, each after those that it needs.

        Raises ValueError where a stream that is needed comes from none of the extractors.
        """
        waiting = list(self.derived)
        while waiting:
            ready = [extractor for extractor in waiting if streams.keys() >= set(extractor.needs_streams)]
            if not ready:
                missing = sorted(set(waiting[0].needs_streams) - streams.keys())
                raise ValueError(f"{waiting[0].name} needs {', '.join(missing)}, which no extractor gives")
            for extractor in ready:
                streams.update(extractor.derive(streams))
                waiting.remove(extractor)


def streamed_size(extractor: WindowExtractor) -> FrameSize:
    """Chooses the size in which the decoder streams frames to an extractor.

    Made smaller by the decoder they are the very bytes that the extractor's own resizing on a CPU gives.
    Another device resizes by itself, faster and not bit by bit alike.
    """
    return extractor.frame_size if extractor.device.type == "cpu" else FrameSize(extractor.short_side)


@dataclass(frozen=True, eq=False)
class ExtractedVideo:
    """The streams of one video, and the decode report."""

    video: Video
    streams: dict[str, Stream]  #: by name, on one clock
    sampled: NDArray[np.float64]  #: float64 (T,), seconds of the frames that were looked at


def extract_video(
    decoder: Decoder,
    path: str | os.PathLike[str],
    extractors: Sequence[AnyExtractor],
    limits: Limits | None = None,
) -> ExtractedVideo:
    """Extracts all streams of one file, as ``extract_videos`` does of many.

    Args:
        decoder: reads the file.
        path, extractors, limits: as of ``extract_videos``.

    Raises:
        MediaError, ValueError: as it yields or raises them; and what a network raises.
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
) -> Iterator[tuple[Path, ExtractedVideo | Exception]]:
    """Extracts all streams of many files, each by one reading of it.

    Args:
        decoders: read the files; with two or more, the next files are decoded ahead.
        paths: the files.
        extractors: each makes its streams, on one clock.
        limits: what one file may cost.

    Returns:
        Each file in its turn, with its streams or the error that left it without any.

    Raises:
        ValueError: where the extractors do not make a whole.
    """
    group = ExtractorGroup(extractors)
    batchers = [Batcher(extractor) for extractor in group.frames]
    unfinished: deque[_VideoInWork] = deque()
    for path, parts in _open_streams(decoders, paths, group.request(), limits or Limits()):
        video = _VideoInWork(path, group, batchers)
        video.read(parts)
        unfinished.append(video)
        while unfinished and unfinished[0].complete:
            yield unfinished.popleft().outcome()
    for batcher in batchers:
        batcher.flush()
    for video in unfinished:
        yield video.outcome()


def _open_streams(
    decoders: Sequence[Decoder],
    paths: Iterable[str | os.PathLike[str]],
    request: DecodeRequest,
    limits: Limits,
) -> Iterator[tuple[Path, Iterator[StreamPart]]]:
    """Opens each file's stream, and those that follow it as far as there are decoders."""
    waiting: deque[tuple[Path, Iterator[StreamPart]]] = deque()
    for path, decoder in zip(paths, cycle(decoders)):
        try:
            parts: Iterator[StreamPart] = decoder.stream(path, request, limits)
        except MediaError as error:
            parts = map(_raise, [error])
        waiting.append((Path(path), parts))
        if len(waiting) == len(decoders):
            yield waiting.popleft()
    yield from waiting


def _raise(error: MediaError) -> StreamPart:
    raise error


@dataclass(eq=False)
class _VideoInWork:
    """Collects one file's rows while its frames go through the networks."""

    path: Path
    group: ExtractorGroup
    batchers: Sequence[Batcher]
    error: Exception | None = None
    _cutters: list[WindowCutter] = field(default_factory=list)
    _pending: list[PendingRows] = field(default_factory=list)
    _sampled: list[NDArray[np.float64]] = field(default_factory=list)
    _sizes: tuple[FrameSize, ...] = ()
    _video: Video | None = None
    _sound: dict[str, Stream] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        return self.error is not None or all(pending.complete for pending in self._pending)

    def outcome(self) -> tuple[Path, ExtractedVideo | Exception]:
        """Returns what came of it, once complete; the derived streams are made now."""
        try:
            return self.path, self._finish()
        except Exception as error:
            return self.path, error

    def read(self, parts: Iterator[StreamPart]) -> None:
        """Takes in all parts; what goes wrong is kept as ``error``."""
        try:
            for part in parts:
                if isinstance(part, StreamStart):
                    self._start(part)
                elif isinstance(part, FrameChunk):
                    self._extract_windows(part)
                else:
                    self._video = part.video
                    for extractor in self.group.sound:
                        self._sound.update(extractor.extract(part.audio, part.video.duration))
        except Exception as error:
            self.error = error
            self._forget()

    def _start(self, start: StreamStart) -> None:
        """Starts, or starts again: the file turned out to show other frames than it promised."""
        self._forget()
        cuts = [extractor.windows.cut(start.duration, start.fps) for extractor in self.group.frames]
        pairs = list(zip(self.group.frames, cuts, strict=True))
        self._cutters = [WindowCutter(extractor, cut) for extractor, cut in pairs]
        self._pending = [PendingRows(extractor, cut) for extractor, cut in pairs]
        self._sampled = []
        self._sizes = self.group.request().frame_sizes

    def _forget(self) -> None:
        for batcher, pending in zip(self.batchers, self._pending, strict=False):
            batcher.forget(pending)

    def _extract_windows(self, chunk: FrameChunk) -> None:
        self._sampled.append(chunk.pts)
        pixels = _ChunkPixels(dict(zip(self._sizes, chunk.pixels, strict=True)))
        of_each = zip(self.group.frames, self.batchers, self._cutters, self._pending, strict=True)
        for extractor, batcher, cutter, pending in of_each:
            frames = pixels.of(extractor)
            pending.view = extractor.view(*frames.shape[1:3])
            for stack in cutter.push(frames, chunk.pts, chunk.until):
                batcher.add(stack, pending)
            if pending.error is not None:
                raise pending.error

    def _finish(self) -> ExtractedVideo:
        if self.error is not None:
            raise self.error
        assert self._video is not None
        streams = dict(self._sound)
        for pending in self._pending:
            streams.update(pending.streams())
        self.group.derive(streams)
        sampled = np.concatenate([np.zeros(0), *self._sampled])
        return ExtractedVideo(self._video, streams, sampled)


class _ChunkPixels:
    """The frames of one chunk by their size, each size taken to a device once."""

    def __init__(self, sizes: Mapping[FrameSize, NDArray[np.uint8]]) -> None:
        self._sizes = sizes
        self._on_device: dict[tuple[FrameSize, torch.device], Tensor] = {}

    def of(self, extractor: WindowExtractor) -> Tensor:
        size, device = streamed_size(extractor), extractor.device
        if (size, device) not in self._on_device:
            self._on_device[size, device] = to_device(self._sizes[size], device)
        return self._on_device[size, device]
