"""Reads wanted frames out of a file: in order from the start, or by jumping to each.

Both ways decode packet by packet, so that one bad packet costs one picture and not the rest of the film, and
hand pictures over one by one. Jumping is checked: unless each wanted time is hit exactly, it ends with an
error.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any, TypeAlias, TypeVar

import av
import numpy as np
from av.container import InputContainer
from av.packet import Packet
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from extractors.media import errors
from extractors.media.containers.container import has_room, open_media, read_packets, select_picture_stream
from extractors.media.containers.packet_index import UNTIMED, PacketIndex, is_cut_off
from extractors.media.media_file import MediaFile

Picture = TypeVar("Picture")
Paint: TypeAlias = Callable[[VideoFrame], Picture]

LAST_FRAMES = 3  # one of them was stored last, whatever their order
# Of a film's end so many frames are decoded where only the references before them are needed.
LAST_DECODED = 16
BYTES_PER_PIXEL = 4
# How far ahead of a key frame to aim, in seconds: transport and program streams land after the mark.
LEADS = (0, 1, 5)
# Decoders that can leave out frames without references, and those that can be emptied in mid-film.
SKIPPING_CODECS = frozenset({"h264", "hevc", "mpeg2video"})
DRAINING_CODECS = frozenset({*SKIPPING_CODECS, "libdav1d", "mpeg4", "vp8", "vp9"})


@dataclass
class MediaSource:
    """A file and what reading it may cost."""

    path: MediaFile
    max_pixels: int
    #: on the clock of ``time.monotonic``; it is moved by the time that who takes the frames keeps the reader
    #: waiting
    deadline: float

    @contextmanager
    def open(self) -> Iterator[tuple[InputContainer, VideoStream]]:
        with open_media(self.path) as container:
            yield container, select_picture_stream(container, self.max_pixels)


@dataclass
class DecodePass:
    """Times and losses of one pass over the file."""

    #: Presentation times of the frames in the order they came (UNTIMED where missing).
    ticks: array[int] = field(default_factory=lambda: array("q"))
    lost: int = 0  #: packets that would not decode
    damaged: int = 0  #: frames that came with errors patched over
    last_damaged: int = 0  #: how many frames had come with the last of these
    agrees: bool = True  #: whether the frames kept to the index so far
    complete: bool = False  #: whether the pass read to the file's end

    def ends_damaged(self, frames: int) -> bool:
        """Returns whether of all ``frames`` that came only the end is damaged, as where a file is cut off."""
        return self.damaged > 0 and self.damaged <= LAST_FRAMES and frames - self.last_damaged < LAST_FRAMES


class JumpMissed(Exception):
    """Raised where a jump did not hit the wanted frame; never seen outside the reading of files."""


def decode_packets(
    packets: Iterable[Packet[VideoStream]], container_format: str, source: MediaSource, reading: DecodePass
) -> Iterator[VideoFrame]:
    """Decodes packet by packet.

    Args:
        packets: of the picture track, in the order of the file.
        container_format: FFmpeg's name of the container.
        source: the file; its deadline is kept.
        reading: counts what cannot be decoded.

    Raises:
        DecodeTimeout, DecodeMemory: where a limit is passed.
    """
    count = 0
    for packet in packets:
        if time.monotonic() > source.deadline:
            raise errors.DecodeTimeout("Decoding the video took longer than the time limit.")
        if is_cut_off(packet, container_format):
            continue
        try:
            frames = packet.decode()
        except (av.error.FFmpegError, MemoryError) as error:
            context = packet.stream.codec_context
            if not has_room(context.width * context.height * BYTES_PER_PIXEL):
                raise errors.DecodeMemory("Decoding took more memory than the limit allows.") from error
            reading.lost += 1
            continue
        for frame in frames:
            count += 1
            if frame.is_corrupt:
                reading.damaged, reading.last_damaged = reading.damaged + 1, count
            yield frame


def read_in_order(
    source: MediaSource,
    paint: Paint[Picture],
    wanted: Collection[int],
    index: PacketIndex,
    reading: DecodePass,
) -> Iterator[tuple[int, Picture]]:
    """Decodes from the start and picks the frames at some positions.

    Ends after the last of them as long as the frames keep to the index; else reads to the end, since
    only the whole then tells which frames there are.

    Args:
        source: the file.
        paint: makes a picture of a frame.
        wanted: positions among the shown frames.
        index: the file's packets.
        reading: an empty pass, which is filled in.

    Returns:
        (position, picture) of each wanted frame.

    Raises:
        DecodeTimeout, DecodeMemory: where a limit is passed.
    """
    last, reading.agrees = max(wanted, default=-1), index.trusted
    with source.open() as (container, stream):
        frames = decode_packets(read_packets(container, stream), container.format.name, source, reading)
        for position, frame in enumerate(frames):
            tick = UNTIMED if frame.pts is None else frame.pts
            reading.ticks.append(tick)
            kept = position < len(index.pts) and tick == index.pts[position]
            reading.agrees = reading.agrees and kept
            if position in wanted:
                yield position, paint(frame)
            if reading.agrees and position >= last:
                return
    reading.complete = True


def read_by_jumps(
    source: MediaSource, paint: Paint[Picture], wanted: Sequence[int], index: PacketIndex, reading: DecodePass
) -> Iterator[tuple[int, Picture]]:
    """Jumps to the key frame before each group of wanted frames and decodes from there.

    Args:
        source, paint, reading: as of ``read_in_order``.
        wanted: positions among the shown frames, rising.
        index: the file's packets; it must be trusted.

    Returns:
        (position, picture) of each wanted frame.

    Raises:
        JumpMissed: where a jump does not land on the wanted frame, or something on the way to it is lost.
        DecodeTimeout, DecodeMemory: where a limit is passed.
    """
    with source.open() as (container, stream):
        shortcuts = find_shortcuts(stream.codec_context.name, index)
        for key, group in group_by_key_frame(wanted, index):
            targets = {index.pts[position]: position for position in group}
            packets = feed_wanted(_packets_from(container, stream, key), stream, targets, shortcuts)
            for tick, frame in _pick_hits(
                decode_packets(packets, container.format.name, source, reading), targets
            ):
                if reading.lost or (frame.interlaced_frame and shortcuts.drains):
                    raise JumpMissed
                yield targets[tick], paint(frame)


@dataclass(frozen=True)
class Shortcuts:
    """Names what need not be decoded for wanted frames to come out as they are."""

    skips: bool  #: frames that no other frame refers to
    #: what is stored after the last wanted frame: the decoder is told that the film ends there, and hands
    #: over what it holds
    drains: bool


ONLY_DRAINS = Shortcuts(skips=False, drains=True)


def find_shortcuts(codec: str, index: PacketIndex) -> Shortcuts:
    """Finds out which shortcuts are exact for a codec, by FFmpeg's name of its decoder.

    Of interlaced film a packet may be half a frame, and in HEVC with temporal layers a frame that none of its
    own layer refers to may be referred to by those above.
    """
    if index.interlaced:
        return Shortcuts(skips=False, drains=False)
    return Shortcuts(codec in SKIPPING_CODECS and not index.layered, codec in DRAINING_CODECS)


def feed_wanted(
    packets: Iterable[Packet[VideoStream]],
    stream: VideoStream,
    targets: Collection[int],
    shortcuts: Shortcuts,
) -> Iterator[Packet[VideoStream]]:
    """Pass on what is needed for the frames at the target ticks, and set what the decoder leaves out.

    Args:
        packets: from a key frame on.
        stream: their track, which decodes each packet before the next is asked for.
        targets: presentation times of the wanted frames.
        shortcuts: those that are exact here.
    """
    waiting = set(targets)
    for packet in packets:
        if shortcuts.skips:
            stream.codec_context.skip_frame = "DEFAULT" if packet.pts in waiting else "NONREF"
        yield packet
        waiting.discard(UNTIMED if packet.pts is None else packet.pts)
        if shortcuts.drains and not waiting:
            yield _make_end_mark(stream)
            return


def _make_end_mark(stream: VideoStream) -> Packet[VideoStream]:
    mark: Any = Packet()
    mark.stream = stream
    return mark  # type: ignore[no-any-return]


def _packets_from(container: InputContainer, stream: VideoStream, key: int) -> Iterator[Packet[VideoStream]]:
    """Reads packets from the one that holds the key frame at tick ``key``; none where it is not found.

    Containers without an index of their own land near the asked time, often after it: then the jump is
    tried again from further ahead. Packets that are skipped cost no decoding.
    """
    for seconds in LEADS:
        lead = round(seconds / (stream.time_base or 1))
        try:
            container.seek(key - lead, stream=stream, backward=True)
        except av.error.FFmpegError:
            continue
        packets = read_packets(container, stream)
        for packet in packets:
            if packet.is_keyframe and packet.pts is not None and packet.pts >= key:
                if packet.pts == key:
                    yield packet
                    yield from packets
                    return
                break


def _pick_hits(frames: Iterable[VideoFrame], targets: Collection[int]) -> Iterator[tuple[int, VideoFrame]]:
    """Picks the frames at exactly the target ticks. Raises JumpMissed as soon as one is passed over."""
    waiting, before = sorted(targets, reverse=True), UNTIMED
    for frame in frames:
        tick = UNTIMED if frame.pts is None else frame.pts
        if tick <= before or tick > waiting[-1]:
            raise JumpMissed
        before = tick
        if tick == waiting[-1]:
            yield waiting.pop(), frame
        if not waiting:
            return
    raise JumpMissed


def has_damaged_end(source: MediaSource, index: PacketIndex) -> bool:
    """Returns whether decoding from the last key frame on ends with a damaged picture."""
    reading, frames = DecodePass(), 0
    with source.open() as (container, stream):
        stream.codec_context.thread_count = 1  # two threads do not always tell each other of damage
        shortcuts = replace(find_shortcuts(stream.codec_context.name, index), drains=False)
        packets = _packets_from(container, stream, index.keys[-1])
        packets = feed_wanted(packets, stream, index.pts[-LAST_DECODED:], shortcuts)
        for _ in decode_packets(packets, container.format.name, source, reading):
            frames += 1
    return reading.ends_damaged(frames)


def group_by_key_frame(wanted: Sequence[int], index: PacketIndex) -> list[tuple[int, list[int]]]:
    """Groups wanted positions by the tick of the key frame that they are decoded from, in order.

    Needs a trusted index.
    """
    keyed = [(index.key_before(index.pts[position]), position) for position in wanted]
    first = index.keys[0]
    return [
        (first if key is None else key, [position for _, position in group])
        for key, group in groupby(keyed, key=lambda pair: pair[0])
    ]


def share_read_by_jumps(wanted: Sequence[int], index: PacketIndex) -> float:
    """Computes the share of the file's frames that jumping would decode."""
    cost = 0
    for key, positions in group_by_key_frame(wanted, index):
        start = np.searchsorted(np.frombuffer(index.pts, np.int64), key)
        cost += positions[-1] + 1 - int(start)
    return cost / len(index.pts)
