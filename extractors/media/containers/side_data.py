"""Reads the display matrix of frames, and the crop and Dolby Vision profile of tracks.

No kind of side data may end a decode. PyAV's ``frame.side_data`` makes objects of all side data at once: it
raises where a kind is newer than its own table, and where a kind has tags (an ICC profile) it frees them
twice, which kills the process. So everything but the display matrix is deleted by a filter first. PyAV shows
nothing of a track's own side data: FFmpeg writes it into the header of an mp4 in memory, and it is read from
there.
"""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
from av.filter import Graph
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

DISPLAY_MATRIX = 6  # AV_FRAME_DATA_DISPLAYMATRIX; FFmpeg has about forty kinds, and more each year
KINDS = 128
CROP_BOX, CROP_NUMBERS = b"\0\0\0\x28clap", struct.Struct(">IIIIiIiI")
#: Boxes an mp4's track keeps its Dolby Vision record in, by profile (ETSI TS 103 572 and Dolby's own).
DOLBY_VISION_BOXES = (b"\0\0\0\x20dvcC", b"\0\0\0\x20dvvC", b"\0\0\0\x20dvwC")


@dataclass(frozen=True)
class Crop:
    """Names the part of a stored frame that is meant to be seen, in its pixels."""

    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True)
class TrackFacts:
    """Facts about a track's frames that stand in its header.

    crop: the part to be seen, None where that is all. dolby_vision: the profile, None where it is none.
    """

    crop: Crop | None = None
    dolby_vision: int | None = None


def read_display_matrix(frame: VideoFrame) -> tuple[int, ...] | None:
    """Read the nine numbers of the frame's display matrix (libavutil/display.h), None where it has none."""
    graph = Graph()
    filters = [
        graph.add_buffer(
            width=frame.width,
            height=frame.height,
            format=frame.format,
            time_base=frame.time_base or Fraction(1, 25),
        ),
        graph.add("sidedata", f"mode=select:type={DISPLAY_MATRIX}"),  # drops frames without one
        *(graph.add("sidedata", f"mode=delete:type={k}") for k in range(KINDS) if k != DISPLAY_MATRIX),
        graph.add("buffersink"),
    ]
    try:
        graph.link_nodes(*filters).configure()
        graph.push(frame)
        graph.push(None)
        kept: Any = graph.pull()
        return struct.unpack("<9i", bytes(kept.side_data["DISPLAYMATRIX"])[:36])
    except (av.error.FFmpegError, LookupError, ValueError, struct.error):
        return None


def read_track_facts(stream: VideoStream) -> TrackFacts:
    """Read crop and Dolby Vision profile of a track; nothing where an mp4 cannot hold its codec."""
    context = stream.codec_context
    for container_format in ("mp4", "mov"):
        header = _write_header(stream, container_format)
        if header:
            return TrackFacts(_parse_crop(header, context.width, context.height), _parse_dolby_vision(header))
    return TrackFacts()


def _write_header(stream: VideoStream, container_format: str) -> bytes:
    """Write the header that FFmpeg makes for a file with this one track."""
    buffer = io.BytesIO()
    options = {"movflags": "frag_keyframe+empty_moov", "strict": "-2"}
    try:
        with av.open(buffer, "w", format=container_format, options=options) as out:
            out.add_stream_from_template(stream)
            out.start_encoding()
    except (av.error.FFmpegError, ValueError, RuntimeError):
        return b""
    return buffer.getvalue()


def _parse_crop(header: bytes, width: int, height: int) -> Crop | None:
    """Parse the clean aperture (ISO/IEC 14496-12, section 12.1.4.1): size, and offset of its centre."""
    _, box, rest = header.partition(CROP_BOX)
    if not box or len(rest) < CROP_NUMBERS.size:
        return None
    numbers = CROP_NUMBERS.unpack_from(rest)
    if 0 in numbers[1::2]:
        return None
    across, down, right, below = (Fraction(*numbers[k : k + 2]) for k in range(0, 8, 2))
    left, top = round((width - across) / 2 + right), round((height - down) / 2 + below)
    crop = Crop(left, top, round(across), round(down))
    inside = 0 <= left <= width - crop.width and 0 <= top <= height - crop.height
    is_whole = (crop.width, crop.height) == (width, height)
    return crop if inside and min(crop.width, crop.height) > 0 and not is_whole else None


def _parse_dolby_vision(header: bytes) -> int | None:
    """Parse the profile: seven bits behind two bytes of version."""
    for name in DOLBY_VISION_BOXES:
        _, box, record = header.partition(name)
        if box and len(record) > 2:
            return record[2] >> 1
    return None
