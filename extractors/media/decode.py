"""Decodes a file: the frames that were asked for, with an account of what the file was like.

    index    read every packet's times, decode nothing        extractors/media/containers/packet_index.py
    probe    decode the first frame: size, rotation, depth    extractors/media/probe.py
    choose   which frames are on screen at the asked times    extractors/media/request.py
    read     jump to them, or decode in order                 extractors/media/frame_reader.py
    report   what was found, lost, missing                    extractors/media/probe.py

The choice is made from the index where that can be trusted, and its frames are handed over as they come.
Where decoding shows other frames than the index promised, the rest is read without handing anything over,
the choice is made again from what was shown, and the frames come again from the first, after a second
``StreamStart``: out of memory where they are few, else by another reading. An index that cannot be trusted
from the start is checked by a first reading of the whole, so that nothing is said twice. No more than a
chunk and ``KEPT_BYTES`` of frames stay in memory: two hours of video cost what ten seconds cost, but for
time.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from av.video.frame import VideoFrame

from extractors.features import Audio, FrameSize
from extractors.media import errors
from extractors.media.audio import read_audio
from extractors.media.containers.edit_lists import extend_last_edits, leave_out_edits
from extractors.media.containers.packet_index import PacketIndex, read_index
from extractors.media.display import Display, FrameConverter
from extractors.media.errors import MediaWarning, WarningCode
from extractors.media.frame_reader import (
    DecodePass,
    JumpMissed,
    MediaSource,
    has_damaged_end,
    read_by_jumps,
    read_in_order,
    share_read_by_jumps,
)
from extractors.media.media_file import MediaFile, MendedBytes, identify_bytes, mend
from extractors.media.probe import Probe, make_report, probe_media
from extractors.media.request import Decoded, DecodeRequest, Limits
from extractors.media.stills.picture_format import is_picture
from extractors.media.stills.pillow import stream_picture
from extractors.media.stream_parts import (
    Sizes,
    StreamEnd,
    StreamPart,
    StreamStart,
    collect_stream,
    split_into_chunks,
)
from extractors.media.timeline import Timeline, timeline_of_index, timeline_of_reading
from extractors.windows import Sampling

__all__ = ["Audio", "DecodeRequest", "Decoded", "Limits", "Sampling", "decode_here", "stream_here"]

# Of jumps to few frames the decoder may leave out what no wanted frame needs: where they would read most of
# the file, that pays while no more than this share of the frames is wanted.
JUMP_BELOW = 0.8
FEW_FRAMES = 0.4
# A second reading chooses from what the first one showed; a third allows for one more surprise.
READINGS = 3
# Frames of a reading that are kept in case the choice is made again: eight of any film, small as they are.
KEPT_BYTES = 32 << 20


def decode_here(
    path: MediaFile, request: DecodeRequest | None = None, limits: Limits | None = None
) -> Decoded:
    """Decodes in this process, all frames at once; services use ``Decoder.decode``.

    Args:
        path: the file. A hostile one may crash native code or hang it.
        request: which frames; by default eight of them.
        limits: what the file may cost. Of ``memory`` only what the frames take is counted here.

    Raises:
        MediaError: one of its leaves, but none of DecoderError.
    """
    request, limits = request or DecodeRequest(), limits or Limits()
    return collect_stream(stream_here(path, request, limits), request, limits)


def stream_here(
    path: MediaFile, request: DecodeRequest, limits: Limits | None = None
) -> Iterator[StreamPart]:
    """Decodes in this process, as the parts are asked for; services use ``Decoder.stream``.

    Args:
        path: the file. A hostile one may crash native code or hang it.
        request: which frames, in which sizes.
        limits: what the file may cost. The time between one part and the asking for the next does not count.

    Returns:
        The parts, ``StreamEnd`` last.

    Raises:
        MediaError: one of its leaves, but none of DecoderError, at any part.
    """
    limits = limits or Limits()
    if is_picture(path):
        yield from stream_picture(path, request, limits)
        return
    source, index, probe = examine(path, limits, is_part=request.part is not None)
    streamer = _Streamer(source, index, probe, request, limits)
    for part in streamer.parts():
        handed_over = time.monotonic()
        yield part
        # a caller that is slow to take parts must not make the file look slow to decode
        source.deadline += time.monotonic() - handed_over
    yield make_end(source, probe, index, streamer.reading, streamer.timeline, request, limits)


def examine(
    path: MediaFile, limits: Limits, *, is_part: bool = False
) -> tuple[MediaSource, PacketIndex, Probe]:
    """Learns what can be known of a file before its frames are chosen.

    Args:
        path: the file.
        limits: what it may cost.
        is_part: whether other parts of the same file are likely to be read before and after, as a film's
            segments are: it is examined once, then, while its bytes stay as they are.
    """
    source = MediaSource(path, limits.pixels, time.monotonic() + limits.seconds)
    if is_part:
        file = _UnchangedFile(identify_bytes(path), limits.pixels, limits.max_frames, source)
        index, probe = _examine_once(file)
    else:
        index, probe = _examine(source, limits.max_frames)
    source.path = mend(path, probe.mended)
    return source, index, probe


@dataclass(frozen=True)
class _UnchangedFile:
    """Equals what was read of the same bytes under the same limits."""

    identity: tuple[int, ...]
    max_pixels: int
    max_frames: int
    source: MediaSource = field(compare=False)


@lru_cache(maxsize=1)
def _examine_once(file: _UnchangedFile) -> tuple[PacketIndex, Probe]:
    return _examine(file.source, file.max_frames)


def _examine(source: MediaSource, max_frames: int) -> tuple[PacketIndex, Probe]:
    """Examines a file, and passes over edit lists that show nothing at all."""
    try:
        return _examine_mended(source, max_frames, extend_last_edits(source.path))
    except errors.NoFrames:
        if not (mended := leave_out_edits(source.path)):
            raise
        index, probe = _examine_mended(source, max_frames, mended)
        return index, replace(probe, warnings=(*probe.warnings, WarningCode.EDITS_PASSED_OVER.warn()))


def _examine_mended(source: MediaSource, max_frames: int, mended: MendedBytes) -> tuple[PacketIndex, Probe]:
    source = replace(source, path=mend(source.path, mended))
    index = read_index(
        source.path, max_pixels=source.max_pixels, max_frames=max_frames, deadline=source.deadline
    )
    probe = replace(probe_media(source, index), mended=mended)
    index.begin_at(probe.tick)
    index.interlaced = probe.interlaced
    if index.open_end and index.trusted and has_damaged_end(source, index):
        index.missing = 1
    return index, probe


def make_end(
    source: MediaSource,
    probe: Probe,
    index: PacketIndex,
    reading: DecodePass,
    timeline: Timeline,
    request: DecodeRequest,
    limits: Limits,
) -> StreamEnd:
    """Reads the sound and reports on the file, once the frames have been read.

    Args:
        source: the file.
        probe: its first frame and its tracks.
        index: its packets.
        reading: the pass that the frames came from.
        timeline: the clock of its frames.
        request: says whether the sound is wanted, and how many frames were.
        limits: how much sound may be read.

    Raises:
        DecodeTimeout, DecodeMemory: where the sound passes a limit.
    """
    video = make_report(probe, index, reading, timeline)
    audio, warnings = _read_sound(source, request.audio_rate, probe, limits)
    taken = len(request.choose(timeline.times, timeline.duration))
    warnings += request.warn_of_shortfall(timeline.times, timeline.duration, taken)
    return StreamEnd(replace(video, warnings=(*video.warnings, *warnings)), audio)


def _read_sound(
    source: MediaSource, rate: int | None, probe: Probe, limits: Limits
) -> tuple[Audio | None, list[MediaWarning]]:
    if rate is None or probe.sound is None:
        return None, []
    return read_audio(source, rate, probe.zero, limits.audio_seconds)


class _Streamer:
    """Readings of one file until one holds to its own choice; ``reading`` and ``timeline`` are the last's."""

    def __init__(
        self, source: MediaSource, index: PacketIndex, probe: Probe, request: DecodeRequest, limits: Limits
    ) -> None:
        self._source, self._index, self._request, self._limits = source, index, request, limits
        self._first_picture = probe.first_picture
        self._painter = _Painter(probe.display, request.frame_sizes)
        self.reading = DecodePass()
        self.timeline = timeline_of_index(index)
        _check_duration(self.timeline, limits)

    def parts(self) -> Iterator[StreamPart]:
        """Reads until a reading holds. Raises TooDamaged where the file shows other frames each time."""
        # first, since most requests want a few frames of a sound file, and then most of it is never decoded
        if self._pays_to_jump():
            try:
                yield from self._jump()
            except JumpMissed:
                pass
            else:
                return
        for turn in range(READINGS):
            kept = _KeptPictures()
            yield from self._read(kept, is_first=turn == 0)
            if not self.reading.complete:
                return
            # where frames were as promised the reading stopped after the last; this one was read to the end
            promised, self.timeline = self.timeline, _settle(self.reading, self._index, self._limits)
            same_times = np.array_equal(promised.times, self.timeline.times)
            if turn > 0 and same_times and promised.duration == self.timeline.duration:
                return
            pictures = kept.at(self._choose())
            if pictures is not None:
                yield from self._hand_over(pictures, self._choose())
                return
        raise errors.TooDamaged("The file shows other frames each time it is decoded.")

    def _pays_to_jump(self) -> bool:
        if not self._index.trusted:
            return False
        frame_numbers = self._choose()
        is_few = len(frame_numbers) <= FEW_FRAMES * len(self._index.pts)
        return is_few or share_read_by_jumps(frame_numbers, self._index) < JUMP_BELOW

    def _jump(self) -> Iterator[StreamPart]:
        self.reading, frame_numbers = DecodePass(), self._choose()
        jumps = read_by_jumps(self._source, self._painter.paint, frame_numbers, self._index, self.reading)
        yield from self._hand_over((picture for _, picture in jumps), frame_numbers)

    def _read(self, kept: "_KeptPictures", is_first: bool) -> Iterator[StreamPart]:
        """Reads in order. Of a first reading only what keeps to a trusted index is handed over."""
        reading, frame_numbers = DecodePass(), self._choose()
        self.reading = reading
        shown = read_in_order(
            self._source, self._painter.paint, frozenset(frame_numbers), self._index, reading
        )
        pictures = kept.keep(shown)
        if is_first and not self._index.trusted:
            for _ in pictures:  # read for the times alone; what is wanted of it is kept on the way
                pass
            return
        agreeing = (picture for _, picture in pictures if reading.agrees or not is_first)
        yield from self._hand_over(agreeing, frame_numbers)

    def _hand_over(self, pictures: Iterable[Sizes], wanted: list[int]) -> Iterator[StreamPart]:
        duration = self.timeline.duration
        yield StreamStart(duration, len(self.timeline) / duration, self._first_picture)
        yield from split_into_chunks(pictures, self.timeline.times[wanted], self._request.chunk_bytes)

    def _choose(self) -> list[int]:
        positions: list[int] = self._request.choose(self.timeline.times, self.timeline.duration).tolist()
        return positions


class _Painter:
    """Turns decoded frames into pixels in several sizes."""

    def __init__(self, display: Display, sizes: tuple[FrameSize, ...]) -> None:
        self._sizes = sizes
        self._converters = {size.short_side: FrameConverter(display.at(size.short_side)) for size in sizes}

    def paint(self, frame: VideoFrame) -> Sizes:
        """Makes uint8 (H, W, 3) of a frame in each size."""
        pixels = {side: converter.pixels(frame)[None] for side, converter in self._converters.items()}
        return tuple(size.shrink(pixels[size.short_side])[0] for size in self._sizes)


class _KeptPictures:
    """Keeps the pictures of one reading by position, none once they take more than KEPT_BYTES."""

    def __init__(self) -> None:
        self._pictures: dict[int, Sizes] = {}
        self._bytes = 0

    def keep(self, pictures: Iterable[tuple[int, Sizes]]) -> Iterator[tuple[int, Sizes]]:
        """Pass on what is read, and keep it."""
        for position, sizes in pictures:
            self._bytes += sum(pixels.nbytes for pixels in sizes)
            if self._bytes <= KEPT_BYTES:
                self._pictures[position] = sizes
            else:
                self._pictures.clear()
            yield position, sizes

    def at(self, positions: list[int]) -> list[Sizes] | None:
        """Returns the pictures at these positions, None where not all were kept."""
        if self._pictures.keys() >= set(positions):
            return [self._pictures[position] for position in positions]
        return None


def _settle(reading: DecodePass, index: PacketIndex, limits: Limits) -> Timeline:
    """Makes the clock of what a pass that read to the file's end showed.

    Raises NoFrames, TooDamaged, TooLong where nothing or too little was shown, or for too long.
    """
    shown = len(reading.ticks)
    if not shown:
        raise errors.NoFrames("The picture track shows no frame.")
    if reading.lost > limits.lost_share * (shown + reading.lost):
        raise errors.TooDamaged(f"Of {shown + reading.lost} frames, {reading.lost} could not be decoded.")
    timeline = timeline_of_reading(reading, index)
    _check_duration(timeline, limits)
    return timeline


def _check_duration(timeline: Timeline, limits: Limits) -> None:
    if timeline.duration > limits.max_duration:
        raise errors.TooLong(
            f"The video lasts {timeline.duration:.0f} seconds, and {limits.max_duration:.0f} are allowed."
        )
