"""Makes the decode report: what was found in the file against what its header claims."""

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


def make_report(probe: Probe, index: PacketIndex, reading: DecodePass, timeline: Timeline) -> Video:
    """Report on a file after its frames were read.

    Args:
        probe: its first frame and its tracks.
        index: its packets.
        reading: the pass that the frames came from.
        timeline: the clock of its frames.

    Returns:
        The facts, with a warning for each thing that is amiss.
    """
    expected = _count_expected_frames(probe, index)
    sound = probe.sound
    return Video(
        container=probe.container,
        codec=probe.codec,
        duration=timeline.duration,
        width=probe.display.width,
        height=probe.display.height,
        rotation=probe.display.rotation,
        fps=probe.fps,
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
        warnings=(*probe.warnings, *_find_warnings(index, reading, timeline, expected)),
    )


def _find_warnings(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    yield from _find_missing_end(index, reading, timeline, expected)
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


def _count_expected_frames(probe: Probe, index: PacketIndex) -> int | None:
    """Take over the header's claim; one of fewer frames than there are was made of a part of the file."""
    if probe.expected is None:
        return None
    expected = max(0, probe.expected - index.hidden)
    if index.container == "avi":  # counts ticks where frames do not follow each other at one rate
        ticks = not index.missing and index.packets < expected <= TICKS_SLACK * _count_frames(index)
        return None if ticks else expected
    return expected if expected >= _count_frames(index) else None


def _count_frames(index: PacketIndex) -> int:
    """Count the frames in the file, with those that AVI leaves out because they equal the one before."""
    found = index.packets - index.hidden - index.damaged
    return max(found, (index.newest or 0) + 1) if index.container == "avi" else found


def _find_missing_end(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    """Make one warning at most, by the plainest of the claims that are not kept."""
    if expected is not None and _count_frames(index) < expected:
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
