"""Finds the facts about a file: before its frames are read, by its tracks and its first frame, which settle
how all frames are shown; and afterwards, what was found against what its header claims.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from av.container import InputContainer
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

from extractors.media import errors
from extractors.media.containers.completeness import read_opendml_frames
from extractors.media.containers.container import (
    STILL_FORMATS,
    check_pixels,
    find_sound_stream,
    list_picture_tracks,
    read_packets,
)
from extractors.media.containers.packet_index import CLOCK_STAMPED, WRAP, PacketIndex
from extractors.media.containers.sample_descriptions import read_first_aspect
from extractors.media.display import (
    Display,
    TrackFacts,
    find_picture_warnings,
    is_untagged_hd,
    plan_display,
    read_track_facts,
)
from extractors.media.errors import MediaWarning, WarningCode
from extractors.media.frame_reader import (
    ONLY_DRAINS,
    DecodePass,
    MediaSource,
    decode_packets,
    feed_wanted,
    find_shortcuts,
)
from extractors.media.media_file import MendedBytes
from extractors.media.request import Video
from extractors.media.timeline import Timeline

ALIEN_COLOURS = 5  # the Dolby Vision profile whose base layer is in colours of its own
# What streams write in place of a count that they cannot know yet begins here.
LEAST_PLACEHOLDER = 1 << 30
COUNTING_FORMATS = ("mov,mp4,m4a,3gp,3g2,mj2",)
FASTEST_RATE = 1000  # above this a "rate" is the container's clock, not frames

ANIMATIONS = ("gif", "apng")
LONGEST_STAY = 0.7  #: seconds from one frame of a transport stream to the next (ISO/IEC 13818-1, 2.7.4)
# The last frame's stay is part of what AVI counts in ticks, and not known to us.
TICKS_SLACK = 1.1


@dataclass(frozen=True)
class SoundTrack:
    """The sound track, where there is one that can be decoded."""

    codec: str
    channels: int
    rate: int


@dataclass(frozen=True)
class Probe:
    """Facts that the file states about itself, and its first frame."""

    container: str
    codec: str
    display: Display
    tick: int | None  #: presentation time of the first frame, in the stream's ticks
    zero: float  #: the same in seconds
    first_picture: float  #: the same on the clock of players, in seconds
    expected: int | None  #: frames the header claims
    fps: float | None
    sound: SoundTrack | None
    warnings: tuple[MediaWarning, ...]
    assumes_bt709: bool = False  #: whether the colours are not tagged and taken for those of HD
    interlaced: bool = False  #: whether a frame is two half-pictures
    mended: MendedBytes = ()  #: with which the file was read, see edit_lists.py


def probe_media(source: MediaSource, index: PacketIndex) -> Probe:
    """Opens the file and decodes one frame. Raises NoFrames, TooManyPixels and what opening raises."""
    with source.open() as (container, stream):
        frame = _decode_first_frame(source, container, stream, index)
        check_pixels(frame.width, frame.height, source.max_pixels)
        time_base = stream.time_base or Fraction(1)
        still = container.format.name in STILL_FORMATS
        facts, aspect = read_track_facts(stream), stream.sample_aspect_ratio
        if container.format.name in COUNTING_FORMATS:
            aspect = read_first_aspect(source.path, stream.id) or aspect
        warnings = [*find_picture_warnings(frame), *_track_warnings(container, stream, facts)]
        if still:
            warnings.append(WarningCode.STILL_IMAGE.warn())
        return Probe(
            container=container.format.name,
            codec=stream.codec_context.name,
            display=plan_display(frame, aspect, facts.crop),
            tick=frame.pts,
            zero=(zero := 0.0 if frame.pts is None else float(frame.pts * time_base)),
            first_picture=0.0 if frame.pts is None else max(0.0, zero - _find_players_zero(container)),
            expected=_read_frame_count(source, container, stream),
            fps=None if still else _read_nominal_rate(stream),
            sound=_find_sound_track(container),
            warnings=tuple(warnings),
            assumes_bt709=is_untagged_hd(frame),
            interlaced=frame.interlaced_frame,
        )


def _find_players_zero(container: InputContainer) -> float:
    """Finds where players begin to count: at 0, but at the first sound or picture of a clock that runs on."""
    tracks = [each for each in container.streams if each.start_time is not None]
    begins = [float((each.start_time or 0) * (each.time_base or 1)) for each in tracks]
    if container.format.name not in CLOCK_STAMPED:
        return min([0.0, *begins])
    around = WRAP / 90_000
    return min((begin - around if begin > around / 2 else begin for begin in begins), default=0.0)


def _track_warnings(
    container: InputContainer, stream: VideoStream, facts: TrackFacts
) -> Iterator[MediaWarning]:
    tracks = list_picture_tracks(container)
    if len(tracks) > 1:
        number = 1 + [track.index for track in tracks].index(stream.index)
        width, height = stream.codec_context.width, stream.codec_context.height
        yield WarningCode.TRACK_CHOSEN.warn(tracks=len(tracks), number=number, width=width, height=height)
    if facts.dolby_vision == ALIEN_COLOURS:
        yield WarningCode.DOLBY_VISION.warn()


def _read_frame_count(source: MediaSource, container: InputContainer, stream: VideoStream) -> int | None:
    """Reads the frames the header claims, less those that an edit list takes out of the container's table.

    Other containers claim none: FFmpeg counts what it found in them, or takes ticks for frames.
    """
    frames = stream.frames
    if container.format.name == "avi":
        frames = max(frames, read_opendml_frames(source.path) or 0)
        return frames if 0 < frames < LEAST_PLACEHOLDER else None
    listed = len(stream.index_entries)
    if container.format.name not in COUNTING_FORMATS or listed > frames:  # fragments: the header has a part
        return None
    return min(frames, listed or frames) or None


def _decode_first_frame(
    source: MediaSource, container: InputContainer, stream: VideoStream, index: PacketIndex
) -> VideoFrame:
    """Decodes the first shown frame, and where the index names it no other.

    source: the file; its deadline is kept. Raises NoFrames: where nothing decodes; DecodeTimeout,
    DecodeMemory: where a limit is passed.
    """
    reading, name = DecodePass(), container.format.name
    if index.trusted and index.pts and find_shortcuts(stream.codec_context.name, index).drains:
        packets = feed_wanted(read_packets(container, stream), stream, index.pts[:1], ONLY_DRAINS)
        frame = next(decode_packets(packets, name, source, reading), None)
        if frame is not None and frame.pts == index.pts[0]:
            return frame
        with source.open() as (container, stream):
            return _decode_first_frame(source, container, stream, replace(index, trusted=False))
    frame = next(decode_packets(read_packets(container, stream), name, source, reading), None)
    if frame is None:
        raise errors.NoFrames(_explain_no_frame(reading.lost))
    return frame


def _explain_no_frame(lost: int) -> str:
    if lost:
        return f"None of the {lost} packets of the picture track could be decoded."
    return "The picture track shows no frame."


def _read_nominal_rate(stream: VideoStream) -> float | None:
    rate = stream.guessed_rate or stream.average_rate
    return float(rate) if rate and rate <= FASTEST_RATE else None


def _find_sound_track(container: InputContainer) -> SoundTrack | None:
    stream = find_sound_stream(container)
    if stream is None:
        return None
    context = stream.codec_context
    return SoundTrack(context.name, context.channels, context.sample_rate)


def make_report(probe: Probe, index: PacketIndex, reading: DecodePass, timeline: Timeline) -> Video:
    """Reports on a file after its frames were read.

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
        first_picture=probe.first_picture,
        warnings=(*probe.warnings, *_find_warnings(index, reading, timeline, expected)),
    )


def _find_warnings(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    yield from _find_missing_end(index, reading, timeline, expected)
    if len(timeline) == 1 and index.container in ANIMATIONS:
        yield WarningCode.STILL_IMAGE.warn()
    stay = float(np.median(np.diff(timeline.times))) if len(timeline) > 1 else 0.0
    if index.container in CLOCK_STAMPED and stay > LONGEST_STAY:
        yield WarningCode.LONG_STAYS.warn(stay=stay)
    if reading.lost:
        yield WarningCode.FRAMES_LOST.warn(lost=reading.lost)
    if reading.damaged:
        yield WarningCode.FRAMES_DAMAGED.warn(damaged=reading.damaged)
    if timeline.estimated:
        yield WarningCode.TIMES_ESTIMATED.warn()
    if timeline.mended:
        yield WarningCode.TIMES_MENDED.warn(mended=timeline.mended, frames=len(timeline))
    if timeline.shortened:
        yield WarningCode.STAY_SHORTENED.warn(end=timeline.duration, longer=timeline.shortened)


def _count_expected_frames(probe: Probe, index: PacketIndex) -> int | None:
    """Takes over the header's claim; one of fewer frames than there are was made of a part of the file."""
    if probe.expected is None:
        return None
    expected = max(0, probe.expected - index.hidden)
    if index.container == "avi":  # counts ticks where frames do not follow each other at one rate
        ticks = not index.missing and index.packets < expected <= TICKS_SLACK * _count_frames(index)
        return None if ticks else expected
    return expected if expected >= _count_frames(index) else None


def _count_frames(index: PacketIndex) -> int:
    """Counts the frames in the file, with those that AVI leaves out because they equal the one before."""
    shown = index.packets - index.hidden - index.damaged
    return max(shown, (index.newest or 0) + 1) if index.container == "avi" else shown


def _find_missing_end(
    index: PacketIndex, reading: DecodePass, timeline: Timeline, expected: int | None
) -> Iterator[MediaWarning]:
    """Makes one warning at most, by the plainest of the claims that are not kept."""
    if expected is not None and _count_frames(index) < expected:
        claim = f"The header promises {expected} frames and the file has {len(timeline)}"
    elif index.promises_more and expected is None:
        claim = f"The header promises {index.claimed_seconds:.1f} seconds"
        claim = f"{claim} and the pictures end at {timeline.duration:.1f}"
    elif index.missing:
        claim = f"The file ends {index.missing} bytes, or more, before its own structure says that it does"
    elif index.open_end and reading.complete and reading.ends_damaged(len(reading.ticks)):
        claim = "The file ends in the middle of its last picture"
    else:
        return
    yield WarningCode.INCOMPLETE.warn(claim=claim)
