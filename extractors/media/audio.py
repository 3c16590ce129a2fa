"""Reads the sound of a video: any codec to mono float32 at one rate, on the clock of the picture."""

import time
from collections.abc import Iterator

import av
import numpy as np
from av.audio.frame import AudioFrame
from av.audio.resampler import AudioResampler
from av.audio.stream import AudioStream
from av.container import InputContainer
from numpy.typing import NDArray

from extractors.features import Audio
from extractors.media import errors
from extractors.media.containers.container import (
    LEAST_ROOM,
    find_sound_stream,
    has_room,
    open_media,
    read_packets,
)
from extractors.media.errors import MediaWarning, WarningCode
from extractors.media.frame_reader import MediaSource

# Smaller steps between blocks are rounding of times; larger ones are real silence.
SMALLEST_GAP = 0.1


class SampleBuffer:
    """Lays samples down at their times; what lies before zero or after the limit is cut off.

    rate: samples a second. limit: samples kept at most.
    """

    def __init__(self, rate: int, limit: int) -> None:
        self._rate = rate
        self._limit = limit
        self._blocks: list[NDArray[np.float32]] = []
        self._length = 0
        self.cut = False

    def append_at(self, samples: NDArray[np.float32], start: float | None) -> bool:
        """Adds a block that starts at ``start`` seconds (None: right after the last). False when full."""
        at = self._length if start is None else round(start * self._rate)
        if self._length == 0 and at < 0:
            samples = samples[-at:]
        elif at - self._length > SMALLEST_GAP * self._rate or (self._length == 0 and at > 0):
            self._append(np.zeros(min(at, self._limit) - self._length, np.float32))
        self._append(samples)
        return not self.cut

    def _append(self, samples: NDArray[np.float32]) -> None:
        room = self._limit - self._length
        self.cut = self.cut or len(samples) > room
        kept = samples[:room]
        if len(kept):
            self._blocks.append(kept)
            self._length += len(kept)

    def to_audio(self) -> Audio:
        samples = np.concatenate(self._blocks) if self._blocks else np.zeros(0, np.float32)
        return Audio(samples, self._rate)


def read_audio(
    source: MediaSource, rate: int, zero: float, limit: float
) -> tuple[Audio | None, list[MediaWarning]]:
    """Reads the first sound track that can be decoded.

    Args:
        source: the file.
        rate: samples a second that are wanted.
        zero: container seconds of the first shown frame.
        limit: seconds of sound kept at most.

    Returns:
        The sound and its warnings; None and a warning where it cannot be decoded.

    Raises:
        DecodeTimeout, DecodeMemory: where a limit is passed.
    """
    buffer, lost = SampleBuffer(rate, int(limit * rate)), 0
    with open_media(source.path) as container:
        stream = find_sound_stream(container)
        if stream is None:
            return None, []
        mixer = _Mixer(rate)
        for frame in _decode_blocks(container, stream, source.deadline):
            if frame is None:
                lost += 1
            elif not all(buffer.append_at(samples, start) for samples, start in mixer.mix(frame, zero)):
                break
        if not buffer.cut:
            for samples in mixer.flush():
                buffer.append_at(samples, None)
    audio = buffer.to_audio()
    if not len(audio.samples):
        return None, [WarningCode.AUDIO_UNREADABLE.warn()]
    return audio, list(_find_warnings(buffer.cut, lost, limit))


class _Mixer:
    """Mixes blocks to mono at one rate. Channels are averaged: FFmpeg's own mix may exceed full scale."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._kind: tuple[str, int, str] | None = None
        self._resampler: AudioResampler | None = None

    def mix(self, frame: AudioFrame, zero: float) -> Iterator[tuple[NDArray[np.float32], float | None]]:
        """Yields (samples, start in seconds after ``zero`` or None). A broadcast's layout may change."""
        kind = (frame.layout.name, frame.sample_rate, frame.format.name)
        if kind != self._kind:
            for samples in self.flush():
                yield samples, None
            self._kind = kind
            self._resampler = AudioResampler(format="flt", layout=frame.layout, rate=self._rate)
        assert self._resampler is not None
        for block in self._resampler.resample(frame):
            yield _to_mono(block), None if block.pts is None or block.time is None else block.time - zero

    def flush(self) -> Iterator[NDArray[np.float32]]:
        """Returns what the resampler still holds; it follows the block before."""
        if self._resampler is not None:
            for block in self._resampler.resample(None):
                yield _to_mono(block)


def _to_mono(block: AudioFrame) -> NDArray[np.float32]:
    """Averages the interleaved channels: PyAV reads past the planes of a frame with more than eight."""
    channels = block.to_ndarray().reshape(-1, block.layout.nb_channels)
    return channels.mean(axis=1, dtype=np.float32)  # type: ignore[no-any-return]


def _decode_blocks(
    container: InputContainer, stream: AudioStream, deadline: float
) -> Iterator[AudioFrame | None]:
    """Decodes blocks; None stands for each packet that would not decode."""
    for packet in read_packets(container, stream):
        if time.monotonic() > deadline:
            raise errors.DecodeTimeout("Decoding the sound took longer than the time limit.")
        try:
            yield from packet.decode()
        except (av.error.FFmpegError, MemoryError) as error:
            if not has_room(LEAST_ROOM):
                raise errors.DecodeMemory("Decoding the sound took too much memory.") from error
            yield None


def _find_warnings(cut: bool, lost: int, limit: float) -> Iterator[MediaWarning]:
    if cut:
        yield WarningCode.AUDIO_CUT.warn(limit=limit)
    if lost:
        yield WarningCode.AUDIO_DAMAGED.warn(lost=lost)
