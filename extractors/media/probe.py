"""Probes a file: its tracks and its first frame, which settle how all frames are shown."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

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
from extractors.media.containers.packet_index import PacketIndex
from extractors.media.containers.side_data import TrackFacts, read_track_facts
from extractors.media.display import Display, find_picture_warnings, is_untagged_hd, plan_display
from extractors.media.frame_reader import (
    ONLY_DRAINS,
    DecodePass,
    MediaSource,
    decode_packets,
    feed_wanted,
    find_shortcuts,
)
from extractors.media.video import MediaWarning

ALIEN_COLOURS = 5  # the Dolby Vision profile whose base layer is in colours of its own
# What streams write in place of a count that they cannot know yet begins here.
LEAST_PLACEHOLDER = 1 << 30
COUNTING_FORMATS = ("mov,mp4,m4a,3gp,3g2,mj2",)
FASTEST_RATE = 1000  # above this a "rate" is the container's clock, not frames


@dataclass(frozen=True)
class SoundTrack:
    """The sound track, where there is one that can be decoded."""

    codec: str
    channels: int
    rate: int


@dataclass(frozen=True)
class Probe:
    """Facts that the file states about itself, and its first frame.

    tick: presentation time of the first frame, in the stream's ticks. zero: the same in seconds.
    expected: frames the header claims. container_duration: seconds the header claims.
    assumes_bt709: whether the colours are not tagged and taken for those of HD.
    interlaced: whether a frame is two half-pictures.
    """

    container: str
    codec: str
    display: Display
    tick: int | None
    zero: float
    expected: int | None
    fps: float | None
    container_duration: float | None
    sound: SoundTrack | None
    warnings: tuple[MediaWarning, ...]
    assumes_bt709: bool = False
    interlaced: bool = False


def probe_media(source: MediaSource, index: PacketIndex) -> Probe:
    """Open the file and decode one frame. Raises NoFrames, TooManyPixels and what opening raises."""
    with source.open() as (container, stream):
        frame = decode_first_frame(source, container, stream, index)
        check_pixels(frame.width, frame.height, source.max_pixels)
        time_base = stream.time_base or Fraction(1)
        still = container.format.name in STILL_FORMATS
        facts = read_track_facts(stream)
        warnings = [*find_picture_warnings(frame), *_track_warnings(container, stream, facts)]
        if still:
            warnings.append(MediaWarning("still_image", "The file is a single picture, not a video."))
        return Probe(
            container=container.format.name,
            codec=stream.codec_context.name,
            display=plan_display(frame, stream.sample_aspect_ratio, facts.crop),
            tick=frame.pts,
            zero=0.0 if frame.pts is None else float(frame.pts * time_base),
            expected=_read_frame_count(source, container, stream),
            fps=None if still else _read_nominal_rate(stream),
            container_duration=None if container.duration is None else container.duration / 1e6,
            sound=_find_sound_track(container),
            warnings=tuple(warnings),
            assumes_bt709=is_untagged_hd(frame),
            interlaced=frame.interlaced_frame,
        )


def _track_warnings(
    container: InputContainer, stream: VideoStream, facts: TrackFacts
) -> Iterator[MediaWarning]:
    tracks = sorted(list_picture_tracks(container), key=lambda track: track.index)
    if len(tracks) > 1:
        number = 1 + [track.index for track in tracks].index(stream.index)
        size = f"{stream.codec_context.width} × {stream.codec_context.height}"
        text = f"The file has {len(tracks)} picture tracks; number {number} ({size}) is read."
        yield MediaWarning("track_chosen", text)
    if facts.dolby_vision == ALIEN_COLOURS:
        text = "The video is Dolby Vision profile 5, whose colours are read wrongly (green and violet)."
        yield MediaWarning("dolby_vision", text)


def _read_frame_count(source: MediaSource, container: InputContainer, stream: VideoStream) -> int | None:
    """Frames the header claims, less those that an edit list takes out of the container's own table.

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


def decode_first_frame(
    source: MediaSource, container: InputContainer, stream: VideoStream, index: PacketIndex
) -> VideoFrame:
    """Decode the first shown frame, and where the index names it no other.

    Args:
        source: the file; its deadline is kept.
        container: the file, just opened.
        stream: its picture track.
        index: the file's packets.

    Returns:
        The frame.

    Raises:
        NoFrames: where nothing decodes.
        DecodeTimeout, DecodeMemory: where a limit is passed.
    """
    reading, name = DecodePass(), container.format.name
    if index.trusted and index.pts and find_shortcuts(stream.codec_context.name, index).drains:
        packets = feed_wanted(read_packets(container, stream), stream, index.pts[:1], ONLY_DRAINS)
        frame = next(decode_packets(packets, name, source, reading), None)
        if frame is not None and frame.pts == index.pts[0]:
            return frame
        with source.open() as (container, stream):
            return decode_first_frame(source, container, stream, replace(index, trusted=False))
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
