"""Mends edit lists of mp4 files of which FFmpeg shows nothing (ISO/IEC 14496-12, section 8.6.6).

They are mended as the file is read, and the file stays as it is.
"""

from __future__ import annotations

import re

from extractors.media.containers.sample_descriptions import read_headers
from extractors.media.media_file import MediaFile, MendedFile

EDIT_LIST = re.compile(rb"edts.{4}elst([\0\1]).{3}(.{4})", re.DOTALL)
FIELD_BYTES = {b"\0": 4, b"\1": 8}  #: of an edit's length and its begin, by the list's version; 4 follow
TO_THE_END = 0xFFFFFFFF  #: ticks, longer than any film


def extend_last_edits(path: MediaFile) -> MediaFile:
    """Lets a last edit of no length go on to the end of the film, as writers of streams and players mean it.

    Returns the path itself where there is none.
    """
    mended = []
    for at, header in read_headers(path):
        for edits in EDIT_LIST.finditer(header):
            width = FIELD_BYTES[edits[1]]
            last = edits.end() + (int.from_bytes(edits[2]) - 1) * (2 * width + 4)
            length, begin = header[last : last + width], header[last + width : last + 2 * width]
            if len(begin) == width and not any(length) and begin[0] < 0x80:  # it is not empty, which is -1
                mended.append((at + last, TO_THE_END.to_bytes(width)))
    return MendedFile(path, tuple(mended)) if mended else path


def leave_out_edits(path: MediaFile) -> MediaFile | None:
    """Takes all edit lists out of the file; None where it has none."""
    places = [at + each.start() for at, header in read_headers(path) for each in EDIT_LIST.finditer(header)]
    return MendedFile(path, tuple((place, b"free") for place in places)) if places else None
