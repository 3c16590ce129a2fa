"""Reads eight frames of each film in other ways than the service does: what would they save, and cost?

The index of packets is made once and not measured: what is, is opening the film, walking to the wanted frames
and converting them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from av.container import InputContainer
from av.video.stream import VideoStream
from numpy.typing import NDArray

from benchmarks.support.film_shapes import FilmShape
from benchmarks.support.rows import Row, measure_in_turns, medians
from extractors.media.containers.packet_index import PacketIndex
from extractors.media.decode import examine
from extractors.media.display import FrameConverter
from extractors.media.frame_reader import DecodePass, MediaSource, read_by_jumps
from extractors.media.probe import Probe
from extractors.media.request import Limits
from extractors.windows import Sampling

SIDE = 256
FRAMES = Sampling(8)
#: Old codecs, the only ones that FFmpeg decodes at half the size.
SHRINKING = tuple(
    FilmShape(name, suffix, codec, 1280, 720, 250, {"g": "25", "b": "6M", "color_range": "jpeg"})
    for name, suffix, codec in (("MPEG-4", ".mp4", "mpeg4"), ("motion JPEG", ".mkv", "mjpeg"))
)


@dataclass
class TunedSource(MediaSource):
    """A file whose decoder is set otherwise.

    kind, threads: how many threads share what, as FFmpeg names it. options: for the decoder.
    """

    kind: str = "AUTO"
    threads: int = 2
    options: Mapping[str, str] = field(default_factory=dict)

    @contextmanager
    def open(self) -> Iterator[tuple[InputContainer, VideoStream]]:
        with super().open() as (container, stream):
            context = stream.codec_context
            context.thread_type, context.thread_count = self.kind, self.threads
            context.options = {**context.options, **self.options}
            yield container, stream


@dataclass(frozen=True)
class WantedFrames:
    """Frames of a file that are read, at these positions of its index."""

    source: TunedSource
    index: PacketIndex
    probe: Probe
    positions: Sequence[int]

    def read(self) -> NDArray[np.uint8]:
        """Read them: uint8 (T, H, W, 3)."""
        paint = FrameConverter(self.probe.display.at(SIDE)).pixels
        jumps = read_by_jumps(self.source, paint, self.positions, self.index, DecodePass())
        return np.stack([picture for _, picture in jumps])

    def tuned(self, **how: object) -> WantedFrames:
        """The same frames by a decoder that is set otherwise."""
        return replace(self, source=replace(self.source, **how))  # type: ignore[arg-type]


def measure_policies(films: Mapping[FilmShape, Path], rounds: int) -> Iterator[Row]:
    """Measures each way on each film.

    Args:
        films: their files by their shapes.
        rounds: that count.

    Returns:
        Rows whose peer is the other way: below 1 it is the quicker one.
    """
    for shape, path in films.items():
        frames = find_wanted(path)
        yield from compare_ways(shape.name, frames, list_ways(frames), rounds)
    with tempfile.TemporaryDirectory() as folder:
        for shape in SHRINKING:
            frames = find_wanted(shape.draw(Path(folder) / shape.file_name))
            half = frames.tuned(options={"lowres": "1"})
            yield from compare_ways(shape.name, frames, {"half the size (lowres)": half}, rounds)


def find_wanted(path: Path) -> WantedFrames:
    """Index a film and choose eight frames of it."""
    _, index, probe = examine(path, Limits())
    seconds = (np.array(index.pts) - index.pts[0]) * float(index.time_base)
    positions = FRAMES.choose(seconds, float(seconds[-1])).tolist()
    return WantedFrames(TunedSource(path, Limits().pixels, float("inf")), index, probe, positions)


def list_ways(frames: WantedFrames) -> dict[str, WantedFrames]:
    """Lists the other ways by name."""
    whole = replace(frames, index=replace(frames.index, interlaced=True))  # of such, nothing is left out
    return {
        "nothing left out": whole,
        "nearest key frames": replace(frames, positions=find_nearest_keys(frames)),
        "one thread": frames.tuned(threads=1),
        "four threads, a frame each": frames.tuned(threads=4, kind="FRAME"),
        "two threads, slices": frames.tuned(kind="SLICE"),
    }


def find_nearest_keys(frames: WantedFrames) -> list[int]:
    """Find the key frames nearest to the wanted ones, each once."""
    times = np.array(frames.index.pts)
    keys = np.flatnonzero(np.isin(times, np.array(frames.index.keys)))
    nearest = {int(keys[np.abs(times[keys] - times[wanted]).argmin()]) for wanted in frames.positions}
    return sorted(nearest)


def compare_ways(
    name: str, frames: WantedFrames, others: Mapping[str, WantedFrames], rounds: int
) -> Iterator[Row]:
    """Lets the service's way and others take turns on one film.

    Args:
        name: of the film.
        frames: read as the service does.
        others: by name, the other ways.
        rounds: that count.

    Returns:
        A row for each other way.
    """
    ways: dict[str, Callable[[], object]] = {"": frames.read}
    ways |= {way: other.read for way, other in others.items()}
    taken = medians(measure_in_turns(ways, rounds, clock=time.process_time))
    right = frames.read()
    for way, other in others.items():
        yield Row(
            benchmark="decode",
            name=f"{name}, 8 frames: {way}",
            ours=taken[""],
            peer=taken[way],
            peer_name=way,
            unit="CPU s",
            repeats=rounds,
            note=describe_difference(frames, other, right),
        )


def describe_difference(frames: WantedFrames, other: WantedFrames, right: NDArray[np.uint8]) -> str:
    """Says how another way's pictures differ.

    Args:
        frames: the wanted ones.
        other: those that the other way reads.
        right: pictures of the wanted ones.

    Returns:
        A few words.
    """
    if list(other.positions) != list(frames.positions):
        times = np.array(frames.index.pts) * float(frames.index.time_base)
        away = np.abs(times[list(other.positions)][:, None] - times[list(frames.positions)][None]).min(axis=0)
        return f"{len(other.positions)} different frames, up to {away.max():.1f} s off"
    difference = np.abs(other.read().astype(int) - right)
    return "the same bytes" if not difference.any() else f"differs by up to {difference.max()} of 255"
