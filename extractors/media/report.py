"""The decode report: what was found in the file against what its header claims."""

from __future__ import annotations

from collections.abc import Iterator

from extractors.media.containers.packet_index import PacketIndex
from extractors.media.frame_reader import DecodePass
from extractors.media.probe import Probe
from extractors.media.timeline import Timeline
from extractors.media.video import MediaWarning, Video

ANIMATIONS = ("gif", "apng")
# The last frame's stay is part of what AVI counts in ticks, and not known to us.
TICKS_SLACK = 1.1


def report(check: Probe, index: PacketIndex, reading: DecodePass, timeline: Timeline) -> Video:
    """Everything that is known about the file after its frames were read."""
    expected = _frames_expected(check, index)
    sound = check.sound
    return Video(
        container=check.container,
        codec=check.codec,
        duration=timeline.duration,
        width=check.display.width,
        height=check.display.height,
        rotation=check.display.rotation,
        fps=check.fps,
        fps_average=len(timeline) / timeline.duration,
        frames=len(timeline),
        frames_expected=expected,
        frames_counted=reading.complete,
        frames_lost=reading.lost,
        times_estimated=timeline.estimated,
        has_audio=sound is not None,
        audio_codec=sound.codec if sound else None,
        audio_channels=sound.channels if sound else None,
        audio_rate=sound.rate if sound else None,
        warnings=(*check.warnings, *_file_warnings(index, reading, timeline, expected)),
    )


def _file_warnings(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    yield from _missing_end(index, reading, timeline, expected)
    if len(timeline) == 1 and index.container in ANIMATIONS:
        yield MediaWarning("still_image", "The file is a single picture, not a video.")
    if reading.lost:
        yield MediaWarning("frames_lost", f"{reading.lost} frames could not be decoded and were passed over.")
    if reading.damaged:
        yield MediaWarning("frames_damaged", f"{reading.damaged} frames were decoded with errors in them.")
    if timeline.estimated:
        yield MediaWarning("times_estimated", "The file has no usable times; they follow from its rate.")
    if timeline.mended:
        wrong = f"{timeline.mended} of {len(timeline)} frames have a doubled, backward or missing time"
        yield MediaWarning("times_mended", f"{wrong}, which was set between those of its neighbours.")
    if timeline.shortened:
        claim = f"The header and the edit list end the film at {timeline.duration:.1f} seconds"
        stay = f"a frame's own stay would make it {timeline.shortened:.1f} longer"
        yield MediaWarning("stay_shortened", f"{claim} and {stay}; the header was followed.")


def _frames_expected(check: Probe, index: PacketIndex) -> int | None:
    """What the header claims; a claim of fewer frames than there are was made of a part of the file."""
    if check.expected is None:
        return None
    expected = max(0, check.expected - index.hidden)
    if index.container == "avi":  # counts ticks where frames do not follow each other at one rate
        ticks = not index.missing and index.packets < expected <= TICKS_SLACK * _found(index)
        return None if ticks else expected
    return expected if expected >= _found(index) else None


def _found(index: PacketIndex) -> int:
    """Frames in the file, with those that AVI leaves out because they equal the one before."""
    found = index.packets - index.hidden - index.damaged
    return max(found, (index.newest or 0) + 1) if index.container == "avi" else found


def _missing_end(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    """One warning at most, by the plainest of the claims that are not kept."""
    if expected is not None and _found(index) < expected:
        claim = f"The header promises {expected} frames and the file has {len(timeline)}."
    elif index.promises_more and expected is None:
        claim = f"The header promises {index.claimed_seconds:.1f} seconds"
        claim = f"{claim} and the pictures end at {timeline.duration:.1f}."
    elif index.missing:
        claim = f"The file ends {index.missing} bytes, or more, before its own structure says that it does."
    elif index.open_end and reading.complete and reading.ends_damaged(len(reading.ticks)):
        claim = "The file ends in the middle of its last picture."
    else:
        return
    yield MediaWarning("incomplete", claim)
