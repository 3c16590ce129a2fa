"""Indexes the frames of a file by reading its packets, without decoding any.

The index says which presentation times exist and where decoding can start. It also says whether it can
be trusted: some containers carry no times, some carry decoding times in their place, and a choice
made from those would return a neighbour of the wanted frame without notice.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any

import av
from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from extractors.media import errors
from extractors.media.containers.completeness import (
    LastPacketPlace,
    count_missing_bytes,
    may_end_in_a_picture,
)
from extractors.media.containers.container import (
    open_media,
    read_packets,
    refuse_encrypted_file,
    refuse_encrypted_packet,
    select_picture_stream,
)
from extractors.media.containers.hevc_layers import find_temporal_layer, measure_length_field
from extractors.media.media_file import MediaFile

ASSUMED_RATE = Fraction(25)
CLOCK_STAMPED = ("mpegts", "mpeg")
WRAP = 1 << 33  # ticks of 1/90000 s until a broadcast clock begins anew: 26.5 hours
UNTIMED = -(2**63)
# Where fewer packets than this share run backwards, they are wrong; with B-frames every third and more do.
FEW_BACKWARDS = 0.05
#: Containers whose header says how long the pictures, or all tracks, last.
CLAIMING_FORMATS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm", "flv", "asf", "mxf", "rm")
LONGEST_CLAIM = 30 * 24 * 3600.0
# Claims that run on by more than this are a missing end: seconds, and share of the claim.
END_SLACK = 1.0
END_SLACK_SHARE = 0.1


@dataclass
class PacketIndex:
    """Times of all packets of the picture track, in ticks of ``time_base``; ``keys`` are rising."""

    container: str  #: its name in FFmpeg
    time_base: Fraction  #: seconds a tick
    rate: Fraction  #: nominal frames a second
    #: The times of all packets that are meant to be shown, rising where the index is trusted; else, as far as
    #: known, in the order of display, UNTIMED where missing.
    pts: array[int] = field(default_factory=lambda: array("q"))
    #: Times of the packets decoding can start at, hidden ones included (a film cut by an edit list starts at
    #: one).
    keys: array[int] = field(default_factory=lambda: array("q"))
    packets: int = 0
    hidden: int = 0
    damaged: int = 0  #: packets the demuxer itself calls incomplete
    untimed: int = 0
    newest: int | None = None  #: the last frame's time
    last_length: int = 0  #: how long the last frame stays, 0 where unknown
    last_packet: LastPacketPlace | None = None  #: where it lies in the file
    missing: int = 0  #: bytes that the file lacks at its end, at the least, by what it claims itself
    open_end: bool = False  #: whether only decoding can tell if the last picture is whole
    claimed_seconds: float | None = None  #: how long the header lets the pictures last
    #: Seconds at which the last track ends, known only where the pictures end long before the header does.
    ends: float | None = None
    open_gops: bool = False
    jumps_back: bool = False
    layered: bool = False  #: whether frames of HEVC lie in temporal layers
    interlaced: bool = False  #: whether the first frame is two half-pictures, once it has been decoded
    trusted: bool = True

    @property
    def step(self) -> int:
        """Computes the ticks from one frame to the next at the nominal rate, at least one."""
        return max(1, round(1 / (self.rate * self.time_base)))

    @property
    def pictures_end(self) -> float:
        """Seconds on the container's clock."""
        return float(((self.newest or 0) + self.last_length) * self.time_base)

    @property
    def promises_more(self) -> bool:
        """Returns whether the header's duration is much longer than what was found."""
        claimed = self.claimed_seconds
        end = max(self.pictures_end, self.ends or 0.0)
        return claimed is not None and claimed > end + max(END_SLACK, END_SLACK_SHARE * claimed)

    def begin_at(self, first: int | None) -> None:
        """Forgets the frames before the first one that decodes: they are never shown."""
        position = 0 if first is None else bisect_left(self.pts, first)
        if first is None or position >= len(self.pts) or self.pts[position] != first:
            self.trusted = False
        elif self.trusted:
            del self.pts[:position]

    def key_before(self, wanted: int) -> int | None:
        """Finds the last tick at or before ``wanted`` where decoding can start."""
        position = bisect_right(self.keys, wanted) - 1
        return self.keys[position] if position >= 0 else None


def read_index(path: MediaFile, *, max_pixels: int, max_frames: int, deadline: float) -> PacketIndex:
    """Reads every packet's times once.

    Args:
        path: the file.
        max_pixels: of a frame.
        max_frames: in the file.
        deadline: on the clock of ``time.monotonic``.

    Returns:
        The index, which says itself whether it can be trusted.

    Raises:
        Encrypted, TooManyFrames, DecodeTimeout: and what ``open_media`` and ``select_picture_stream`` raise.
    """
    refuse_encrypted_file(path)
    with open_media(path) as container:
        stream = select_picture_stream(container, max_pixels)
        index = PacketIndex(
            container.format.name, stream.time_base or Fraction(1, 1000), nominal_frame_rate(stream)
        )
        packets = read_packets(container, stream)
        if stream.codec_context.name == "hevc":
            packets = _watch_layers(packets, index, measure_length_field(stream.codec_context.extradata))
        _read_packets(packets, index, max_frames, deadline)
        _finish(index, reorders=bool(stream.codec_context.has_b_frames))
        index.claimed_seconds = _read_claimed_seconds(container, stream)
        if index.promises_more:
            index.ends = _find_last_second(container, index, deadline)
    index.missing = count_missing_bytes(path, index.container, index.last_packet) or min(1, index.damaged)
    index.open_end = not index.missing and may_end_in_a_picture(path, index.container)
    return index


def nominal_frame_rate(stream: VideoStream) -> Fraction:
    """Returns the nominal rate, or 25 where the stream names none."""
    return stream.guessed_rate or stream.average_rate or stream.base_rate or ASSUMED_RATE


def _read_packets(
    packets: Iterable[Packet[VideoStream]], index: PacketIndex, max_frames: int, deadline: float
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
        _note_packet(index, packet)
        if packet.is_keyframe and packet.pts is not None:
            index.jumps_back = index.jumps_back or (last_key is not None and packet.pts <= last_key)
            last_key = packet.pts


def _watch_layers(
    packets: Iterable[Packet[VideoStream]], index: PacketIndex, length_field: int | None
) -> Iterator[Packet[VideoStream]]:
    """Pass packets of HEVC on, and note whether any frame lies in a temporal layer above the lowest."""
    for packet in packets:
        if not index.layered and packet.size:
            index.layered = find_temporal_layer(memoryview(packet), length_field) != 0
        yield packet


def is_cut_off(packet: Packet[VideoStream], container_format: str) -> bool:
    """Returns whether a packet's end is missing; transport streams flag as corrupt what can be decoded."""
    return packet.is_corrupt and container_format not in CLOCK_STAMPED


def _note_packet(index: PacketIndex, packet: Packet[VideoStream]) -> None:
    if packet.pos is not None:
        index.last_packet = LastPacketPlace(packet.pos, packet.size)
    if is_cut_off(packet, index.container):
        index.damaged += 1
    elif packet.pts is None:
        index.untimed += 1
        index.pts.append(UNTIMED)
    else:
        if packet.is_keyframe:
            index.keys.append(packet.pts)
        if packet.is_discard:
            index.hidden += 1
            return
        if index.newest is None or packet.pts >= index.newest:
            index.newest, index.last_length = packet.pts, packet.duration or 0
        index.pts.append(packet.pts)


def _finish(index: PacketIndex, reorders: bool) -> None:
    """Sorts the times and decides whether they can be believed."""
    complete = index.untimed == 0 and bool(index.keys)
    arrived, index.pts = index.pts, array("q", sorted(index.pts))
    index.keys = array("q", sorted(index.keys))
    unique = all(earlier < later for earlier, later in pairwise(index.pts))
    gaps = (later - earlier for earlier, later in pairwise(index.pts))
    restarts = index.container in CLOCK_STAMPED and max(gaps, default=0) > WRAP // 2
    descents = 0
    if not reorders and arrived != index.pts:
        descents = sum(later < earlier for earlier, later in pairwise(arrived))
    stray = 0 < descents < FEW_BACKWARDS * len(arrived)
    # AVI has no presentation times: with B-frames, what is read are times of decoding
    decoding_times = index.container == "avi" and reorders
    index.trusted = complete and unique and not (index.jumps_back or restarts or stray or decoding_times)
    if not index.trusted and not reorders:
        index.pts = arrived


def _read_claimed_seconds(container: InputContainer, stream: VideoStream) -> float | None:
    """Reads the header's duration of the picture track, or of all tracks."""
    if container.format.name not in CLAIMING_FORMATS:
        return None
    if stream.duration is not None and stream.time_base is not None:
        claimed = float(stream.duration * stream.time_base)
    else:
        claimed = (container.duration or 0) / 1e6
    return claimed if 0 < claimed < LONGEST_CLAIM else None


def _find_last_second(container: InputContainer, index: PacketIndex, deadline: float) -> float | None:
    """Finds when the last of the other tracks ends, in seconds; None without any, infinity where unknown."""
    tracks = [track for track in container.streams if track.type != "video"]
    if not tracks:
        return None
    for begin in (index.pictures_end, 0.0):  # some jump to the file's end where their own index ends early
        try:
            container.seek(int(begin * 1e6), backward=True)
            last = max(_read_ends(container.demux(*tracks), deadline), default=0.0)
        except av.error.FFmpegError:
            continue
        if last:
            return last
    return float("inf")


def _read_ends(packets: Iterable[Packet[Any]], deadline: float) -> Iterator[float]:
    """Reads the seconds at which each packet ends."""
    for packet in packets:
        if packet.pts is not None and packet.time_base is not None:
            yield float((packet.pts + (packet.duration or 0)) * packet.time_base)
        if time.monotonic() > deadline:
            raise errors.DecodeTimeout("Reading the file's index took longer than the time limit.")
