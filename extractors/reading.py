"""Two ways to get wanted frames out of a file: in order from the start, or by jumping to each.

Both decode packet by packet, so that one bad packet costs one picture and not the rest of the film.
Jumping is checked: unless each wanted time is hit exactly, its result is thrown away.
"""

from __future__ import annotations

import os
import time
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from extractors import errors
from extractors.container import open_media, picture_stream
from extractors.index import READ_RETRIES, Index, is_cut_off
from extractors.picture import Painter

UNTIMED = -(2**63)


@dataclass(frozen=True)
class Source:
    """A file and what reading it may cost. deadline: on the clock of ``time.monotonic``."""

    path: str | os.PathLike[str]
    max_pixels: int
    deadline: float

    @contextmanager
    def open(self) -> Iterator[tuple[InputContainer, VideoStream]]:
        with open_media(self.path, self.max_pixels) as container:
            yield container, picture_stream(container, {"max_pixels": str(self.max_pixels)})


@dataclass
class Reading:
    """What one pass over the file gave.

    pictures: position among the shown frames → pixels. ticks: presentation times of the frames in the
    order they came (UNTIMED where missing). lost: packets that would not decode. damaged: frames that
    came with errors patched over. complete: whether the pass went on to the file's end.
    """

    pictures: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    ticks: array[int] = field(default_factory=lambda: array("q"))
    lost: int = 0
    damaged: int = 0
    complete: bool = False


def decoded(
    container: InputContainer, stream: VideoStream, source: Source, reading: Reading
) -> Iterator[VideoFrame]:
    """All shown frames from where the container stands; what cannot be decoded is counted in ``reading``."""
    for packet in _packets(container, stream):
        if time.monotonic() > source.deadline:
            raise errors.DecodeTimeout("Decoding the video took longer than the time limit.")
        if is_cut_off(packet, container.format.name):
            reading.lost += 1
            continue
        try:
            frames = packet.decode()
        except MemoryError as error:
            raise errors.DecodeMemory("Decoding the video took more memory than the limit allows.") from error
        except av.error.FFmpegError:
            reading.lost += 1
            continue
        for frame in frames:
            reading.damaged += bool(frame.is_corrupt)
            yield frame


def _packets(container: InputContainer, stream: VideoStream) -> Iterator[Packet[VideoStream]]:
    for _ in range(READ_RETRIES):
        try:
            yield from container.demux(stream)
            return
        except av.error.EOFError:
            return
        except av.error.FFmpegError:
            continue


def read_in_order(source: Source, painter: Painter, wanted: Collection[int], index: Index) -> Reading:
    """Decode from the start and keep the frames at the ``wanted`` positions.

    Ends after the last of them as long as the frames keep to the index; else reads to the end, since
    only the whole then tells which frames there are.
    """
    reading, last, agrees = Reading(), max(wanted), index.trusted
    with source.open() as (container, stream):
        for position, frame in enumerate(decoded(container, stream, source, reading)):
            tick = UNTIMED if frame.pts is None else frame.pts
            reading.ticks.append(tick)
            agrees = agrees and position < len(index.pts) and tick == index.pts[position]
            if position in wanted:
                reading.pictures[position] = painter.pixels(frame)
            if agrees and position >= last:
                return reading
    reading.complete = True
    return reading


def read_by_seeking(source: Source, painter: Painter, wanted: Sequence[int], index: Index) -> Reading | None:
    """Jump to the key frame before each group of wanted positions; None where a jump went wrong."""
    reading = Reading()
    with source.open() as (container, stream):
        for key, group in seek_groups(wanted, index):
            container.seek(key, stream=stream, backward=True)
            targets = {index.pts[position]: position for position in group}
            frames = decoded(container, stream, source, reading)
            earliest = index.key_before(key - 1)
            if not _collect(frames, painter, targets, earliest, into=reading.pictures):
                return None
    return reading


def _collect(
    frames: Iterable[VideoFrame],
    painter: Painter,
    targets: Mapping[int, int],
    earliest: int | None,
    into: dict[int, NDArray[np.uint8]],
) -> bool:
    """Keep the frames at exactly the target ticks; False as soon as one is passed over."""
    waiting, before = sorted(targets, reverse=True), None
    for frame in frames:
        tick = frame.pts
        if tick is None or tick > waiting[-1] or (before is not None and tick <= before):
            return False
        if before is None and earliest is not None and tick < earliest:
            return False  # landed far ahead of the key: each jump would decode the file again
        before = tick
        if tick == waiting[-1]:
            into[targets[waiting.pop()]] = painter.pixels(frame)
        if not waiting:
            return True
    return False


def seek_groups(wanted: Sequence[int], index: Index) -> list[tuple[int, list[int]]]:
    """(key tick, positions decoded from it), in order. Needs a trusted index."""
    keyed = [(index.key_before(index.pts[position]), position) for position in wanted]
    first = index.keys[0]
    return [
        (first if key is None else key, [position for _, position in group])
        for key, group in groupby(keyed, key=lambda pair: pair[0])
    ]


def seek_share(wanted: Sequence[int], index: Index) -> float:
    """The share of the frames that jumping would decode."""
    cost = 0
    for key, positions in seek_groups(wanted, index):
        start = np.searchsorted(np.frombuffer(index.pts, np.int64), key)
        cost += positions[-1] + 1 - int(start)
    return cost / len(index.pts)
