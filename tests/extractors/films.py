"""Films with something in their headers that PyAV cannot write: encryption, crops, Dolby Vision."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av

from tests.media import write_video

COMMON_ENCRYPTION = {
    "encryption_scheme": "cenc-aes-ctr",
    "encryption_key": "76a6c65c5ea762046bd749a2e632ccbb",
    "encryption_kid": "a7e61c373e219033c21091fa607bf3b8",
}
SAMPLE_ENTRY_PATH = (b"moov", b"trak", b"mdia", b"minf", b"stbl", b"stsd")


def write_encrypted(path: Path) -> Path:
    """An mp4 under common encryption (CENC), without its key."""
    return write_video(path, container_options=COMMON_ENCRYPTION)


def write_scrambled(path: Path) -> Path:
    """A transport stream whose pictures are scrambled."""
    content = bytearray(write_video(path).read_bytes())
    for at in range(0, len(content), 188):
        if int.from_bytes(content[at + 1 : at + 3], "big") & 0x1FFF == 256:
            content[at + 3] |= 0x80
            content[at + 12 : at + 188] = bytes(each ^ 0x5A for each in content[at + 12 : at + 188])
    path.write_bytes(content)
    return path


def write_crop(source: Path, path: Path, width: int, height: int, right: int, below: int) -> Path:
    """An mp4 whose clean aperture is that large, its centre that far right and below of the middle."""
    return with_box(source, path, b"clap", struct.pack(">IIIIiIiI", width, 1, height, 1, right, 1, below, 1))


def write_dolby_vision(source: Path, path: Path, profile: int) -> Path:
    """The same film, said to be Dolby Vision."""
    record = bytes([1, 0, profile << 1, 6 << 3 | 5, 0]) + bytes(19)
    return with_box(source, path, b"dvcC", record)


def add_description(first: Path, second: Path, path: Path) -> Path:
    """The first film, with the second's sample description behind its own, as where recordings are joined."""
    content, other, at = bytearray(first.read_bytes()), second.read_bytes(), 0
    begin = other.index(b"stsd") + 12
    entry = other[begin : begin + int.from_bytes(other[begin : begin + 4])]
    for parent in SAMPLE_ENTRY_PATH:
        at = content.index(parent, at)
        _grow(content, at - 4, len(entry))
    end = at - 4 + int.from_bytes(content[at - 4 : at]) - len(entry)
    content[end:end] = entry
    struct.pack_into(">I", content, at + 8, 2)
    path.write_bytes(content)
    return path


def with_box(source: Path, path: Path, name: bytes, payload: bytes) -> Path:
    """An mp4 with a box more in its first track's sample entry; its ``moov`` stands last."""
    content, at = bytearray(source.read_bytes()), 0
    box = struct.pack(">I", 8 + len(payload)) + name + payload
    for parent in SAMPLE_ENTRY_PATH:
        at = content.index(parent, at)
        _grow(content, at - 4, len(box))
    entry = at + 12  # behind version and count
    end = entry + struct.unpack_from(">I", content, entry)[0]
    _grow(content, entry, len(box))
    content[end:end] = box
    path.write_bytes(content)
    return path


def write_edits(
    source: Path, path: Path, edits: Sequence[tuple[float, float]], *, wide: bool = False
) -> Path:
    """The film of an mp4 without B-frames under other edits: seconds that each lasts and at which it begins.

    -1 begins an empty one. wide: numbers of 8 bytes. The header stands behind the frames, or they lie in
    fragments.
    """
    content, form = bytearray(source.read_bytes()), ">QqI" if wide else ">IiI"
    of_film, of_track = (_read_rate(content, name) for name in (b"mvhd", b"mdhd"))
    entries = [
        struct.pack(form, round(length * of_film), round(begin * of_track) if begin >= 0 else -1, 0x10000)
        for length, begin in edits
    ]
    body = b"".join([b"elst", bytes([wide, 0, 0, 0]), struct.pack(">I", len(edits)), *entries])
    box = struct.pack(">I", 12 + len(body)) + b"edts" + struct.pack(">I", 4 + len(body)) + body
    header, track, at = (content.index(name) - 4 for name in (b"moov", b"trak", b"mdia"))
    old = content.find(b"edts", header) - 4
    length = int.from_bytes(content[old : old + 4]) if old >= 0 else 0
    content[at - length : at] = box  # edts stands before mdia
    for parent in (track, header):
        _grow(content, parent, len(box) - length)
    path.write_bytes(content)
    return path


def _read_rate(content: bytearray, name: bytes) -> int:
    at = content.index(name) + 4
    return int.from_bytes(content[at + 12 : at + 16])


def _grow(content: bytearray, at: int, size: int) -> None:
    struct.pack_into(">I", content, at, struct.unpack_from(">I", content, at)[0] + size)


def remux(source: Path, path: Path) -> Path:
    """The same packets in another container."""
    with av.open(str(source)) as given, av.open(str(path), "w", options={"strict": "-2"}) as out:
        track: Any = out.add_stream_from_template(given.streams.video[0])
        for packet in given.demux(given.streams.video[0]):
            if packet.dts is not None:
                packet.stream = track
                out.mux(packet)
    return path


def write_jpegs(path: Path, jpegs: Iterable[bytes]) -> Path:
    """A film of finished JPEGs, ten a second."""
    with av.open(str(path), "w") as out:
        track: Any = out.add_stream("mjpeg", rate=10)
        track.width, track.height, track.pix_fmt = 64, 48, "yuvj420p"
        for position, content in enumerate(jpegs):
            packet = av.Packet(content)
            packet.pts = packet.dts = position
            packet.time_base, packet.stream, packet.is_keyframe = Fraction(1, 10), track, True
            out.mux(packet)
    return path
