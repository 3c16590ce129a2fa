"""Reads the pixel aspect of a track's first frames where an mp4 joins recordings of several shapes.

FFmpeg makes one aspect of the size that the track is displayed at and the last sample description's, which
is not that of the first (ISO/IEC 14496-12, sections 8.3.2 and 8.5.2).
"""

from collections.abc import Iterator
from fractions import Fraction

from extractors.media.containers.completeness import list_outer_boxes, read_box_length
from extractors.media.media_file import MediaFile, open_bytes

MOST_BYTES = 64 << 20  #: of a header that is read


def read_first_aspect(path: MediaFile, track: int) -> Fraction | None:
    """Reads the aspect; None where the track has one description alone, or where nothing says it.

    path: an mp4 file. track: its track's number.
    """
    traks = [box for _, moov in read_headers(path) for name, box in _boxes(moov) if name == b"trak"]
    for trak in traks:
        header = _find_inside(trak, b"tkhd")
        descriptions = list(_boxes(_find_inside(trak, b"mdia", b"minf", b"stbl", b"stsd")[8:]))
        number = header[20:24] if header[:1] == b"\1" else header[12:16]
        if int.from_bytes(number) == track and len(descriptions) > 1:
            return _find_aspect(descriptions[0][1], header)
    return None


def _find_aspect(description: bytes, header: bytes) -> Fraction | None:
    """Takes the aspect that the description names, or makes one of its size and that of the display."""
    named = _find_inside(description[78:], b"pasp")
    across, down = int.from_bytes(named[:4]), int.from_bytes(named[4:8])
    if not across * down:
        width, height = (int.from_bytes(description[at : at + 2]) for at in (24, 26))
        across, down = int.from_bytes(header[-8:-4]) * height, int.from_bytes(header[-4:]) * width
    return Fraction(across, down) if across * down else None


def read_headers(path: MediaFile) -> Iterator[tuple[int, bytes]]:
    """Yields place and content of an mp4's headers (``moov``) of MOST_BYTES at most."""
    with open_bytes(path) as file:
        for name, at, length in list_outer_boxes(file):
            if name == b"moov" and length is not None and length <= MOST_BYTES:
                file.seek(at + 8)
                yield at + 8, file.read(length - 8)


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the name and the content of boxes that lie behind each other."""
    at = 0
    while at + 8 <= len(data) and (length := read_box_length(data[at : at + 16])):
        yield data[at + 4 : at + 8], data[at + 8 : at + length]
        at += length


def _find_inside(box: bytes, *names: bytes) -> bytes:
    """Finds the content of a box in a box, and so on; nothing where there is none."""
    for name in names:
        box = dict(_boxes(box)).get(name, b"")
    return box
