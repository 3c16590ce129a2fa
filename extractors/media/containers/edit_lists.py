"""Mends edit lists of mp4 files of which FFmpeg shows nothing (ISO/IEC 14496-12, section 8.6.6).

They are mended as the file is read, and the file stays as it is.
"""

import re
from collections.abc import Iterator
from itertools import islice

from extractors.media.containers.sample_descriptions import read_headers
from extractors.media.media_file import MediaFile, MendedBytes

EDIT_LIST = re.compile(rb"edts.{4}elst([\0\1]).{3}(.{4})", re.DOTALL)
FIELD_BYTES = {b"\0": 4, b"\1": 8}  #: of an edit's length and its begin, by the list's version; 4 follow
MOST_LISTS = 100  #: that are looked at; a track has one
TO_THE_END = 0xFFFFFFFF  #: ticks, longer than any film


def extend_last_edits(path: MediaFile) -> MendedBytes:
    """Lets a last edit of no length go on to the end of the film, as writers of streams mean it."""
    mended = []
    for at, header, edits in _find_lists(path):
        width = FIELD_BYTES[edits[1]]
        last = edits.end() + (int.from_bytes(edits[2]) - 1) * (2 * width + 4)
        length, begin = header[last : last + width], header[last + width : last + 2 * width]
        if len(begin) == width and not any(length) and begin[0] < 0x80:  # it is not empty, which is -1
            mended.append((at + last, TO_THE_END.to_bytes(width)))
    return tuple(mended)


def leave_out_edits(path: MediaFile) -> MendedBytes:
    """Takes all edit lists out of the file."""
    return tuple((at + edits.start(), b"free") for at, _, edits in _find_lists(path))


def _find_lists(path: MediaFile) -> Iterator[tuple[int, bytes, re.Match[bytes]]]:
    """Yields the place and the content of each header that has edit lists, and each list."""
    headers = read_headers(path)
    lists = ((at, header, edits) for at, header in headers for edits in EDIT_LIST.finditer(header))
    return islice(lists, MOST_LISTS)
