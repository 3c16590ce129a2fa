"""decord as a second reader, only where it is known to return the right frames.

decord (installed by the package ``decord2``) gives a neighbour of the wanted frame, under the right
timestamp, on long H.264, HEVC, open GOPs and streams with B-frames in AVI, and hangs on some transport
streams. It is used for H.264 in mp4 with closed GOPs, upright, up to two minutes; all else is read by
PyAV, and the answer says so.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace

import decord
import numpy as np

from extractors.features import Frames
from extractors.media.containers.packet_index import PacketIndex, read_index
from extractors.media.decode import decode_here, sound_of
from extractors.media.frame_reader import DecodePass, MediaSource
from extractors.media.probe import Probe, probe_media
from extractors.media.report import report
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.stills.pillow import is_picture
from extractors.media.timeline import timeline_of_index
from extractors.media.video import MediaWarning

LONGEST_SECONDS = 120.0


def decode_with_decord(path: str | os.PathLike[str], request: DecodeRequest, limits: Limits) -> Decoded:
    """As ``decode_here``, with a warning ``reader_fallback`` where decord was not used."""
    reason: str | None = "a picture"
    if not is_picture(path):
        source = MediaSource(path, limits.pixels, time.monotonic() + limits.seconds)
        index = read_index(
            path, max_pixels=limits.pixels, max_frames=limits.max_frames, deadline=source.deadline
        )
        seen = probe_media(source, request.short_side)
        index.begin_at(seen.tick)
        reason = why_not(index, seen)
        decoded = None if reason else _read(source, request, limits, index, seen)
        if decoded is not None:
            return decoded
    decoded = decode_here(path, request, limits)
    warning = MediaWarning("reader_fallback", f"Read by PyAV and not decord: {reason or 'it failed'}.")
    return replace(decoded, video=replace(decoded.video, warnings=(*decoded.video.warnings, warning)))


def why_not(index: PacketIndex, seen: Probe) -> str | None:
    """The first reason to keep decord from this file, or None where it may read it."""
    reasons = {
        "not H.264 in mp4": seen.codec != "h264" or not seen.container.startswith("mov,"),
        "the index is not to be trusted": not index.trusted or index.damaged > 0,
        "some frames are hidden by an edit list": index.hidden > 0,
        "open groups of pictures": index.open_gops,
        "longer than two minutes": timeline_of_index(index).duration > LONGEST_SECONDS,
        "cropped": seen.display.crop is not None,
        "colours of HD without a tag": seen.assumes_bt709,
        "rotated": seen.display.rotation != 0 or seen.display.mirrored,
    }
    return next((reason for reason, applies in reasons.items() if applies), None)


def _read(
    source: MediaSource, request: DecodeRequest, limits: Limits, index: PacketIndex, seen: Probe
) -> Decoded | None:
    timeline = timeline_of_index(index)
    positions = request.choose(timeline.times, timeline.duration).tolist()
    pixels = _pixels(source, seen, len(index.pts), positions)
    if pixels is None:
        return None
    video = report(seen, index, DecodePass(), timeline)
    rate = len(timeline.times) / timeline.duration
    frames = Frames(pixels, timeline.times[positions], timeline.duration, rate)
    audio, warnings = sound_of(source, request.audio_rate, seen, limits)
    warnings += request.shortfall(timeline.times, timeline.duration, len(positions))
    return Decoded(replace(video, warnings=(*video.warnings, *warnings)), frames, audio)


def _pixels(
    source: MediaSource, seen: Probe, count: int, positions: list[int]
) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]] | None:
    """uint8 (T, H, W, 3), or None where decord fails or counts other frames than the index."""
    decord.logging.set_level(decord.logging.QUIET)
    height, width, _ = seen.display.shape
    try:
        reader = decord.VideoReader(os.fspath(source.path), width=width, height=height, num_threads=1)
        if len(reader) != count:
            return None
        return np.asarray(reader.get_batch(positions).asnumpy(), np.uint8)
    except (decord.DECORDError, RuntimeError):
        return None
