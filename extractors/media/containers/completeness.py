"""Finds out whether a file's end is missing, by what its container claims and not by what was found in it.

Most containers say somewhere near their start how far they go, or store each piece after its length; the
others end with a mark. Only headers are read here, never content, and no more than ``MOST_PIECES`` of them.
What cannot be understood claims nothing: a wrong alarm would be worse than none.
"""

import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, TypeAlias

from extractors.media.media_file import MediaFile, open_bytes

MOST_PIECES = 200_000
TAIL = 1 << 20

MP4_BOXES = frozenset(
    {b"ftyp", b"styp", b"moov", b"mdat", b"moof", b"mfra", b"sidx", b"ssix", b"free", b"skip", b"wide",
     b"pnot", b"uuid", b"meta", b"emsg", b"prft", b"udta"}
)  # fmt: skip
LONGEST_BOX = 1 << 62  #: bytes of one; what says more is damaged
RIFF_UNKNOWN = (0, 0xFFFFFFFF)
ASF_HEADER = bytes.fromhex("3026b2758e66cf11a6d900aa0062ce6c")
ASF_DATA = bytes.fromhex("3626b2758e66cf11a6d900aa0062ce6c")
ASF_DATA_HEADER = 50
MXF_PARTITION = bytes.fromhex("060e2b34020501010d01020101")
FLV_TAGS = (8, 9, 18)
EBML, SEGMENT, CLUSTER, BLOCK_GROUP = 0x1A45DFA3, 0x18538067, 0x1F43B675, 0xA0
MATROSKA_PIECES = frozenset(
    {
        *(CLUSTER, BLOCK_GROUP, 0x114D9B74, 0x1549A966, 0x1654AE6B, 0x1C53BB6B, 0x1254C367, 0x1043A770),
        *(0x1941A469, 0xEC, 0xBF, 0xE7, 0xA7, 0xAB, 0xA1, 0xA3, 0x9B, 0xFB, 0xFA, 0xA4, 0xA6, 0x75A1, 0x75A2),
    }
)
NUT_INDEX = bytes.fromhex("4e58dd672f23e64e")
NUT_HEADER = bytes.fromhex("4e4d7a561f5f04ad")
TS_PAYLOAD_UNITS = (188, 192, 204)
OGG_LARGEST_PAGE = 65_307


@dataclass(frozen=True)
class LastPacketPlace:
    """First byte of the picture track's last packet, as FFmpeg counts it, and how many bytes it has."""

    position: int
    size: int


@dataclass(frozen=True)
class _MediaBytes:
    """Reads bytes of a file; ``last`` is None where FFmpeg does not tell where its last packet lies."""

    file: BinaryIO
    size: int
    last: LastPacketPlace | None

    def read(self, at: int, count: int) -> bytes:
        self.file.seek(at)
        return self.file.read(count)


#: The byte at which the file says that it ends, None where it does not say.
Claim: TypeAlias = Callable[[_MediaBytes], int | None]


def count_missing_bytes(path: MediaFile, container_format: str, last: LastPacketPlace | None) -> int:
    """Counts the bytes that are missing from a file's end, at the least.

    Args:
        path: the file.
        container_format: FFmpeg's name of the container.
        last: where the last packet of the picture track lies, None where FFmpeg does not tell.

    Returns:
        Bytes; 0 where nothing says that any are missing.
    """
    claim = CLAIMS.get(container_format)
    if claim is None:
        return 0
    with open_bytes(path) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            end = claim(_MediaBytes(file, size, last))
        except (struct.error, IndexError):  # the header itself ends in its middle, or is none
            return 0
    return max(0, (end or 0) - size)


def _mp4(media: _MediaBytes) -> int | None:
    """Finds the end of the last outermost box (ISO/IEC 14496-12, section 4.2)."""
    at = 0
    for _ in range(MOST_PIECES):
        head = media.read(at, 16)
        if at >= media.size or len(head) < 8 or head[4:8] not in MP4_BOXES:
            return at
        length = read_box_length(head)
        if length is None:
            return None
        at += length
    return None


def read_box_length(head: bytes) -> int | None:
    """Reads the length of an mp4's box from its first 16 bytes; None where it tells none."""
    length = int.from_bytes(head[:4], "big")
    if length == 1:
        length = int.from_bytes(head[8:16], "big")
    # zero means "to the end of the file", the rest is damage
    return length if 8 <= length < LONGEST_BOX else None


def list_outer_boxes(file: BinaryIO) -> Iterator[tuple[bytes, int, int | None]]:
    """Yields name, place and length of an mp4's outermost boxes, up to one that tells no length."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(16)
        if len(head) < 8:
            return
        length = read_box_length(head)
        yield head[4:8], at, length
        if length is None:
            return
        at += length


def _avi(media: _MediaBytes) -> int | None:
    """Finds the end of the last RIFF chunk: one, or with OpenDML one for each gigabyte."""
    at = 0
    for _ in range(MOST_PIECES):
        head = media.read(at, 12)
        if head[:4] != b"RIFF" or head[8:12] not in (b"AVI ", b"AVIX"):
            return at
        length = int.from_bytes(head[4:8], "little")
        if length in RIFF_UNKNOWN:
            return None
        at += 8 + length + length % 2
        if at == media.size + 1:  # the byte that makes an odd chunk even is often left out
            return media.size
    return None


def read_opendml_frames(path: MediaFile) -> int | None:
    """Reads how many frames an AVI of several RIFF chunks claims (OpenDML's ``dmlh``), None without it."""
    with open_bytes(path) as file:
        head = file.read(1 << 16)
    place = head.find(b"dmlh", 0, head.find(b"movi"))
    return int.from_bytes(head[place + 8 : place + 12], "little") or None if place >= 0 else None


def _asf(media: _MediaBytes) -> int | None:
    """Reads the end of the data object, after the header object; a broadcast leaves its size open."""
    head = media.read(0, 24)
    if head[:16] != ASF_HEADER:
        return None
    at = int.from_bytes(head[16:24], "little")
    data = media.read(at, 24) if at <= media.size else b""
    length = int.from_bytes(data[16:24], "little")
    return at + length if data[:16] == ASF_DATA and ASF_DATA_HEADER <= length < 1 << 62 else None


def _mxf(media: _MediaBytes) -> int | None:
    """Reads the begin of the footer, which the header names as soon as there is one (SMPTE 377)."""
    head = media.read(0, 120)
    if not head.startswith(MXF_PARTITION):
        return None
    value = 17 + (head[16] & 0x7F if head[16] & 0x80 else 0)
    (footer,) = struct.unpack_from(">Q", head, value + 24)
    return footer + 1 if footer < 1 << 62 else None


def _flv(media: _MediaBytes) -> int | None:
    """Reads ``filesize`` of the metadata, or finds the end of the last tag."""
    head = media.read(0, 1 << 16)
    place = head.find(b"\x00\x08filesize\x00")
    if place >= 0:
        (claimed,) = struct.unpack_from(">d", head, place + 11)
        if media.size < claimed < 1 << 62:
            return int(claimed)
    at = media.last.position if media.last else media.size
    for _ in range(MOST_PIECES):
        tag = media.read(at, 11)
        if len(tag) < 11 or tag[0] & 0x1F not in FLV_TAGS:
            return at - 4 if at <= media.size + 4 else None
        at += 11 + int.from_bytes(tag[1:4], "big") + 4
        if at - 4 > media.size:
            return at - 4
    return None


def _matroska(media: _MediaBytes) -> int | None:
    """Finds the end of the segment, or where that is left open (streams) of the last element."""
    name, length, at = _read_element(media, 0)
    if name != EBML or length is None:
        return None
    name, length, at = _read_element(media, at + length)
    if name != SEGMENT:
        return None
    if length is not None:
        return at + length
    if media.last is not None:
        at = media.last.position + 4 + media.last.size  # after the block's track, time and flags
    for _ in range(MOST_PIECES):
        if at >= media.size:
            return at
        name, length, at = _read_element(media, at)
        if name not in MATROSKA_PIECES:
            return None
        if name not in (CLUSTER, BLOCK_GROUP):
            if length is None:
                return None
            at += length
    return None


def _read_element(media: _MediaBytes, at: int) -> tuple[int, int | None, int]:
    """Reads (name, length or None where left open, begin of the content) of the EBML element at ``at``."""
    head = media.read(at, 12)
    width = 9 - head[0].bit_length()
    name = int.from_bytes(head[:width], "big")
    bytes_of_length = 9 - head[width].bit_length()
    value = int.from_bytes(head[width : width + bytes_of_length], "big")
    most = (1 << 7 * bytes_of_length) - 1
    length = value & most
    return name, None if length == most else length, at + width + bytes_of_length


def _nut(media: _MediaBytes) -> int | None:
    """Looks for the index that ends a NUT file, or where it is left out for the headers once more."""
    (index_size,) = struct.unpack(">Q", media.read(max(0, media.size - 12), 8))
    if 0 < index_size <= media.size and media.read(media.size - index_size, 8) == NUT_INDEX:
        return media.size
    begin = media.last.position + media.last.size if media.last else media.size
    return media.size if NUT_HEADER in media.read(begin, TAIL) else media.size + 1


def _gif(media: _MediaBytes) -> int | None:
    """Looks for the semicolon that ends a GIF; what hosts append is looked past."""
    begin = media.last.position + media.last.size if media.last else max(0, media.size - 1)
    return media.size if b";" in media.read(max(0, min(begin, media.size) - 1), TAIL) else media.size + 1


def _apng(media: _MediaBytes) -> int | None:
    return media.size if b"IEND" in media.read(max(0, media.size - TAIL), TAIL) else media.size + 1


def _ogg(media: _MediaBytes) -> int | None:
    """Finds the end of the last page, which must be marked as its stream's last (RFC 3533)."""
    begin = max(0, media.size - 2 * OGG_LARGEST_PAGE)
    tail = media.read(begin, 2 * OGG_LARGEST_PAGE)
    place = tail.rfind(b"OggS\x00")
    if place < 0:
        return None
    page = tail[place:]
    if len(page) < 27 or len(page) < 27 + page[26]:
        return media.size + 1
    end = begin + place + 27 + page[26] + sum(page[27 : 27 + page[26]])
    return end if end > media.size or page[5] & 4 else media.size + 1


def _program_stream(media: _MediaBytes) -> int | None:
    """Finds the end of the last packet, from the last pack header on (ISO/IEC 13818-1, section 2.5)."""
    begin = max(0, media.size - TAIL)
    tail = media.read(begin, TAIL)
    at = tail.rfind(b"\x00\x00\x01\xba")
    if at < 0:
        return None
    at += 14 + (tail[at + 13] & 7) if tail[at + 4] >> 6 == 1 else 12
    while tail[at : at + 3] == b"\x00\x00\x01" and len(tail) >= at + 6 and tail[at + 3] >= 0xBB:
        at += 6 + int.from_bytes(tail[at + 4 : at + 6], "big")
    return begin + at


def _transport_stream(media: _MediaBytes) -> int | None:
    """Finds the end of the last packet of 188 bytes, or of a track's last piece that tells its length."""
    begin = max(0, media.size - TAIL)
    tail = media.read(begin, TAIL)
    places = _find_packets(tail)
    if not places:
        return None
    end = places[-1] + 188
    if end > len(tail):
        return begin + end
    return media.size + _count_unfinished_bytes(tail, places)


def _find_packets(tail: bytes) -> list[int]:
    """Finds where transport packets begin, as far as they follow each other without a break to the end."""
    for unit in TS_PAYLOAD_UNITS:
        for first in range(max(0, len(tail) - unit), len(tail)):
            run = range(first, -1, -unit)
            whole = next((k for k, at in enumerate(run) if tail[at] != 0x47), len(run))
            if whole >= min(5, len(run)) and whole > 1:
                return [*run[:whole]][::-1]
    return []


def _count_unfinished_bytes(tail: bytes, places: list[int]) -> int:
    """Counts the bytes that a track's last piece lacks, of tracks whose pieces have a length."""
    lacking: dict[int, int] = {}
    for packet in (tail[at : at + 188] for at in places):
        track, payload = _track_number(packet), _cut_payload(packet)
        if packet[1] & 0x40:
            length = int.from_bytes(payload[4:6], "big") if payload[:3] == b"\x00\x00\x01" else 0
            lacking.pop(track, None)
            if length:
                lacking[track] = 6 + length
        if track in lacking:
            lacking[track] -= len(payload)
    return max(0, 0, *lacking.values())


def _track_number(packet: bytes) -> int:
    return (packet[1] & 0x1F) << 8 | packet[2]


def _cut_payload(packet: bytes) -> bytes:
    kind = packet[3] >> 4 & 3
    return packet[4 + (1 + packet[4] if kind == 3 else 0) :] if kind & 1 else b""


def may_end_in_a_picture(path: MediaFile, container_format: str) -> bool:
    """Returns whether a broadcast stream that claims nothing may lack the rest of its last picture.

    Pictures there seldom tell their length, but their last packet is filled up. Where it is not, the picture
    goes on, or fits by chance (one film in 184): only decoding it can tell.
    """
    if container_format not in ("mpegts", "mpeg"):
        return False
    with open_bytes(path) as file:
        size = os.fstat(file.fileno()).st_size
        tail = _MediaBytes(file, size, None).read(max(0, size - TAIL), TAIL)
    if container_format == "mpeg":
        last_pack = tail[max(0, tail.rfind(b"\x00\x00\x01\xba")) :]
        return b"\x00\x00\x01\xbe" not in last_pack and not tail.endswith(b"\x00\x00\x01\xb9")
    endings: dict[int, bool] = {}
    pictures = set()
    for packet in (tail[at : at + 188] for at in _find_packets(tail) if at + 188 <= len(tail)):
        start = _cut_payload(packet)[:4]
        if packet[1] & 0x40 and start[:3] == b"\x00\x00\x01" and start[3:] >= b"\xe0":
            pictures.add(_track_number(packet))
        endings[_track_number(packet)] = _is_filled_up(packet)
    return any(track in pictures and not filled for track, filled in endings.items())


def _is_filled_up(packet: bytes) -> bool:
    """Returns whether the transport packet's adaptation field is longer than what stands in it."""
    if not packet[3] & 0x20:
        return False
    length, flags = packet[4], packet[5]
    used = 1 + 6 * (flags >> 4 & 1) + 6 * (flags >> 3 & 1) + (flags >> 2 & 1)
    return length == 0 or (length > used and not flags & 3)


def _equal_frames(media: _MediaBytes) -> int | None:
    """Checks frames of one size each: what is left after the last is the begin of another."""
    return media.size + 1 if media.last and media.size > media.last.position + media.last.size else None


def _swf(media: _MediaBytes) -> int | None:
    head = media.read(0, 8)
    return int.from_bytes(head[4:8], "little") if head[:3] == b"FWS" else None


CLAIMS: dict[str, Claim] = {
    "mov,mp4,m4a,3gp,3g2,mj2": _mp4,
    "matroska,webm": _matroska,
    "avi": _avi,
    "asf": _asf,
    "mxf": _mxf,
    "flv": _flv,
    "live_flv": _flv,
    "nut": _nut,
    "gif": _gif,
    "apng": _apng,
    "ogg": _ogg,
    "mpeg": _program_stream,
    "mpegts": _transport_stream,
    "yuv4mpegpipe": _equal_frames,
    "dv": _equal_frames,
    "swf": _swf,
}
