"""Where the frames of a file are, learned by reading its packets without decoding any.

The index says which presentation times exist and where decoding can start. It also says whether it can
be trusted: some containers carry no times, some carry decoding times in their place, and a choice
made from those would return a neighbour of the wanted frame without anyone noticing.
"""

from __future__ import annotations

import os
import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from av.packet import Packet
from av.video.stream import VideoStream

from extractors import errors
from extractors.container import open_media, packets_of, picture_stream
from extractors.encryption import refuse_encrypted_file, refuse_encrypted_packet

ASSUMED_RATE = Fraction(25)
CLOCK_STAMPED = ("mpegts", "mpeg")
LONGEST_GAP = 10.0


@dataclass
class Index:
    """Times are in ticks of ``time_base``; ``pts`` and ``keys`` are rising.

    pts: the times of all packets that are meant to be shown. keys: times of the packets decoding can
    start at, hidden ones included (a film cut by an edit list starts at one). newest, last_length: the
    last frame's time and how long it stays, 0 where unknown. damaged: packets the demuxer itself calls
    incomplete.
    """

    container: str
    time_base: Fraction
    rate: Fraction
    pts: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("q"))
    packets: int = 0
    hidden: int = 0
    damaged: int = 0
    untimed: int = 0
    newest: int | None = None
    last_length: int = 0
    open_gops: bool = False
    jumps_back: bool = False
    trusted: bool = True

    @property
    def step(self) -> int:
        """Ticks from one frame to the next at the nominal rate, at least one."""
        return max(1, round(1 / (self.rate * self.time_base)))

    def begin_at(self, first: int | None) -> None:
        """Forget the frames before the first one that decodes: nobody will see them."""
        position = 0 if first is None else bisect_left(self.pts, first)
        if first is None or position >= len(self.pts) or self.pts[position] != first:
            self.trusted = False
        elif self.trusted:
            del self.pts[:position]

    def key_before(self, wanted: int) -> int | None:
        """The last tick at or before ``wanted`` where decoding can start."""
        position = bisect_right(self.keys, wanted) - 1
        return self.keys[position] if position >= 0 else None


def read_index(path: str | os.PathLike[str], *, max_pixels: int, max_frames: int, deadline: float) -> Index:
    """Read every packet's times once.

    Raises what ``open_media`` raises, Encrypted, TooManyFrames, DecodeTimeout.
    """
    refuse_encrypted_file(path)
    with open_media(path) as container:
        stream = picture_stream(container, max_pixels)
        index = Index(container.format.name, stream.time_base or Fraction(1, 1000), frame_rate(stream))
        _read_packets(packets_of(container, stream), index, max_frames, deadline)
        _finish(index, reorders=bool(stream.codec_context.has_b_frames))
    return index


def frame_rate(stream: VideoStream) -> Fraction:
    """The nominal rate, or 25 where the stream names none."""
    return stream.guessed_rate or stream.average_rate or stream.base_rate or ASSUMED_RATE


def _read_packets(
    packets: Iterable[Packet[VideoStream]], index: Index, max_frames: int, deadline: float
) -> None:
    last_key: int | None = None
    for packet in packets:
        if packet.size == 0:  # the end-of-stream marker
            continue
        refuse_encrypted_packet(packet)
        index.packets += 1
        if index.packets > max_frames:
            raise errors.TooManyFrames(f"The video has more than {max_frames} frames.")
        if index.packets % 256 == 0 and time.monotonic() > deadline:
            raise errors.DecodeTimeout("Reading the file's index took longer than the time limit.")
        if packet.pts is not None and last_key is not None and packet.pts < last_key:
            index.open_gops = True
        _note(index, packet)
        if packet.is_keyframe and packet.pts is not None:
            index.jumps_back = index.jumps_back or (last_key is not None and packet.pts <= last_key)
            last_key = packet.pts


def is_cut_off(packet: Packet[VideoStream], container_format: str) -> bool:
    """Whether the packet's end is missing; transport streams flag as corrupt what may well be decoded."""
    return packet.is_corrupt and container_format not in CLOCK_STAMPED


def _note(index: Index, packet: Packet[VideoStream]) -> None:
    if is_cut_off(packet, index.container):
        index.damaged += 1
    elif packet.pts is None:
        index.untimed += 1
    else:
        if packet.is_keyframe:
            index.keys.append(packet.pts)
        if packet.is_discard:
            index.hidden += 1
            return
        if index.newest is None or packet.pts >= index.newest:
            index.newest, index.last_length = packet.pts, packet.duration or 0
        index.pts.append(packet.pts)


def _finish(index: Index, reorders: bool) -> None:
    """Sort the times and decide whether they can be believed."""
    complete = index.untimed == 0 and bool(index.keys)
    index.pts = array("q", sorted(index.pts))
    index.keys = array("q", sorted(index.keys))
    gaps = [later - earlier for earlier, later in pairwise(index.pts)]
    unique = min(gaps, default=1) > 0
    # a recording that restarts its clock shows a gap that nobody would sit through
    restarts = index.container in CLOCK_STAMPED and max(gaps, default=0) * index.time_base > LONGEST_GAP
    # AVI has no presentation times: with B-frames, what is read are times of decoding
    decoding_times = index.container == "avi" and reorders
    index.trusted = complete and unique and not (index.jumps_back or restarts or decoding_times)
