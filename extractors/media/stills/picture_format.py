"""Detects by a file's bytes whether it is a picture, and which, whatever follows the picture in it."""

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass

from extractors.media.media_file import MediaFile, open_bytes

JPEG, PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
# the last is BigTIFF; Canon's raw files say CR after a TIFF's first eight bytes
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
AVIF_BRANDS = {b"avif", b"avis"}
HEIF_BRANDS = {b"heic", b"heix", b"heim", b"heis", b"mif1", b"mif2", b"miaf", b"1pic", b"jpeg"}
# films of HEVC in the same boxes: FFmpeg reads them
FILM_BRANDS = {b"hevc", b"hevx", b"hevm", b"hevs", b"msf1"}
HEAD = 4096
# A marker that is neither a stuffed byte nor a restart, so the end of a scan's data.
MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]")
NO_FILL = re.compile(rb"[^\xff]")
SHORTEST_FILM = 3


def is_picture(path: MediaFile) -> bool:
    """Returns whether Pillow reads the file; FFmpeg reads other pictures (GIF, BMP, animated PNG, …)."""
    return detect_picture_format(path) is not None


def detect_picture_format(path: MediaFile) -> str | None:
    """Returns Pillow's name of the format, None where FFmpeg is to read the file."""
    try:
        with open_bytes(path) as file:
            head = file.read(HEAD)
            if head.startswith(JPEG):
                return None if _is_film_of_jpegs(file.fileno()) else "JPEG"
            if head.startswith(PNG):
                return None if _is_animated_png(file.fileno()) else "PNG"
    except (OSError, ValueError):
        return None
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "WEBP"
    if head.startswith(TIFF):
        return "TIFF"
    return _detect_by_brand(head) if head[4:8] == b"ftyp" else None


def _detect_by_brand(head: bytes) -> str | None:
    """Goes by the major brand: it names what to show, the others name other readings (ISO/IEC 23008-12)."""
    size = min(int.from_bytes(head[:4], "big"), len(head))
    major, others = head[8:12], {head[at : at + 4] for at in range(16, size, 4)}
    if major in AVIF_BRANDS or (major in HEIF_BRANDS and others & AVIF_BRANDS):
        return "AVIF"
    if major in FILM_BRANDS:
        return None
    return "HEIF" if major in HEIF_BRANDS else None


def _is_animated_png(descriptor: int) -> bool:
    """Returns whether a chunk acTL with more than one frame stands before the pixels."""
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        at = len(PNG)
        while at + 12 <= len(content):
            kind = content[at + 4 : at + 8]
            if kind == b"acTL":
                return int.from_bytes(content[at + 8 : at + 12], "big") > 1
            if kind == b"IDAT":
                return False
            at += 12 + int.from_bytes(content[at : at + 4], "big")
    return False


@dataclass(frozen=True)
class _JpegExtent:
    """Extent of one JPEG in a file."""

    end: int
    size: bytes
    has_more: bool  #: it says itself that other pictures belong to it


def _is_film_of_jpegs(descriptor: int) -> bool:
    """Returns whether pictures of one size stand end to end and the first does not list the others."""
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as content:
        first: _JpegExtent | None = None
        for count, jpeg in enumerate(_find_jpegs(content), start=1):
            first = first or jpeg
            if first.has_more or jpeg.size != first.size:
                return False
            if count == SHORTEST_FILM:
                return True
    return False


def _find_jpegs(content: mmap.mmap) -> Iterator[_JpegExtent]:
    at = 0
    while content[at : at + 3] == JPEG:
        jpeg = _parse_jpeg(content, at)
        if jpeg is None:
            return
        yield jpeg
        at = jpeg.end


def _parse_jpeg(content: mmap.mmap, begin: int) -> _JpegExtent | None:
    """Parses the JPEG that begins there, None where its end is missing (ISO/IEC 10918-1, annex B)."""
    at, size, has_more = begin + 2, b"", False
    while at + 4 <= len(content) or content[at : at + 2] == b"\xff\xd9":
        marker = content[at + 1]
        if content[at] != 0xFF:
            return None
        if marker == 0xD9:
            return _JpegExtent(at + 2, size, has_more)
        if marker == 0xFF:  # fill, of which there may be any amount
            match = NO_FILL.search(content, at + 1)
            if match is None:
                return None
            at = match.start() - 1
            continue
        length = int.from_bytes(content[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            size = content[at + 5 : at + 9]
        # the multi-picture format (CIPA DC-007) is for stereo pairs and gain maps
        has_more = has_more or content[at + 4 : at + 8] == b"MPF\0"
        at += 2 + length
        if marker == 0xDA:
            match = MARKER.search(content, at)
            if match is None:
                return None
            at = match.start()
    return None
