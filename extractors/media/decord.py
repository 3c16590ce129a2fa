"""Reads files with decord, a second reader, only where it is known to return the right frames.

decord (installed by the package ``decord2``) gives a neighbour of the wanted frame, under the right
timestamp, on long H.264, HEVC, open GOPs and streams with B-frames in AVI, and hangs on some transport
streams. It is used for H.264 in mp4 with closed GOPs, upright, up to two minutes; all else is read by
PyAV, and the answer says so.
"""

from collections.abc import Iterator
from dataclasses import replace

import decord
import numpy as np

from extractors.media.containers.packet_index import PacketIndex
from extractors.media.decode import examine, make_end, stream_here
from extractors.media.display import Display
from extractors.media.errors import WarningCode
from extractors.media.frame_reader import DecodePass, MediaSource
from extractors.media.media_file import MediaFile, open_bytes
from extractors.media.probe import Probe
from extractors.media.request import DecodeRequest, Limits
from extractors.media.stills.picture_format import is_picture
from extractors.media.stream_parts import StreamEnd, StreamPart, StreamStart, split_into_chunks
from extractors.media.timeline import timeline_of_index

LONGEST_SECONDS = 120.0


def stream_with_decord(path: MediaFile, request: DecodeRequest, limits: Limits) -> Iterator[StreamPart]:
    """Decodes with decord where it may read the file, else with PyAV and a warning ``reader_fallback``.

    Args:
        path, limits: as of ``stream_here``, whose parts and errors these are.
        request: which frames. Frames in several sizes are read by PyAV, without a warning.
    """
    if request.short_side is None or len(request.frame_sizes) > 1:
        yield from stream_here(path, request, limits)
        return
    reason: str | None = "a picture"
    if not is_picture(path):
        source, index, probe = examine(path, limits, is_part=request.part is not None)
        reason = find_objection(index, probe)
        parts = None if reason else _read(source, index, probe, request, limits)
        if parts is not None:
            yield from parts
            return
    for part in stream_here(path, request, limits):
        yield _with_warning(part, reason or "it failed") if isinstance(part, StreamEnd) else part


def _with_warning(end: StreamEnd, reason: str) -> StreamEnd:
    warning = WarningCode.READER_FALLBACK.warn(reason=reason)
    return replace(end, video=replace(end.video, warnings=(*end.video.warnings, warning)))


def find_objection(index: PacketIndex, probe: Probe) -> str | None:
    """Finds the first reason to keep decord from this file, or None where it may read it."""
    reasons = {
        "not H.264 in mp4": probe.codec != "h264" or not probe.container.startswith("mov,"),
        "the index is not to be trusted": not index.trusted or index.damaged > 0,
        "some frames are hidden by an edit list": index.hidden > 0,
        "open groups of pictures": index.open_gops,
        "longer than two minutes": timeline_of_index(index).duration > LONGEST_SECONDS,
        "cropped": probe.display.crop is not None,
        "colours of HD without a tag": probe.assumes_bt709,
        "rotated": probe.display.rotation != 0 or probe.display.mirrored,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _read(
    source: MediaSource, index: PacketIndex, probe: Probe, request: DecodeRequest, limits: Limits
) -> list[StreamPart] | None:
    timeline = timeline_of_index(index)
    positions = request.choose(timeline.times, timeline.duration).tolist()
    pixels = _pixels(source, probe.display.at(request.short_side), len(index.pts), positions)
    if pixels is None:
        return None
    times = timeline.times[positions]
    return [
        StreamStart(timeline.duration, len(timeline) / timeline.duration, probe.first_picture),
        *split_into_chunks(((picture,) for picture in pixels), times, request.chunk_bytes),
        make_end(source, probe, index, DecodePass(), timeline, request, limits),
    ]


def _pixels(
    source: MediaSource, display: Display, count: int, positions: list[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
    """Reads uint8 (T, H, W, 3), or None where decord fails or counts other frames than the index."""
    decord.logging.set_level(decord.logging.QUIET)
    height, width, _ = display.shape
    try:
        with open_bytes(source.path) as file:
            reader = decord.VideoReader(file, width=width, height=height, num_threads=1)
        if len(reader) != count:
            return None
        return np.asarray(reader.get_batch(positions).asnumpy(), np.uint8)
    except (decord.DECORDError, RuntimeError, MemoryError):
        return None
