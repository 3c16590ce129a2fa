"""Sound of any codec, mono, on the clock of the picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from extractors.media.audio import SampleBuffer
from extractors.media.decode import Audio, DecodeRequest, Limits, decode_here
from tests.media import write_video

RATE = 16000


def sound_of(path: Path, **limits: Any) -> Audio:
    audio = decode_here(path, DecodeRequest(audio_rate=RATE), Limits(**limits)).audio
    assert audio is not None
    assert audio.samples.dtype == np.float32
    assert audio.rate == RATE
    return audio


def pitch(samples: NDArray[np.float32]) -> float:
    """Hertz of the strongest tone."""
    return float(np.abs(np.fft.rfft(samples)).argmax() * RATE / len(samples))


@pytest.mark.parametrize(
    ("name", "codec", "rate", "layout"),
    [
        ("a.mp4", "aac", 16000, "mono"),
        ("a.mp4", "aac", 48000, "stereo"),
        ("a.mp4", "libmp3lame", 44100, "mono"),
        ("a.mkv", "libopus", 48000, "stereo"),
        ("a.mkv", "flac", 22050, "mono"),
        ("a.avi", "pcm_s16le", 8000, "mono"),
        ("a.ts", "mp2", 32000, "stereo"),
        ("a.mkv", "pcm_s16le", 16000, "hexadecagonal"),
    ],
)
def test_any_codec_becomes_mono_at_the_asked_rate(
    name: str, codec: str, rate: int, layout: str, tmp_path: Path
) -> None:
    path = write_video(
        tmp_path / name, audio_seconds=2.0, audio_codec=codec, audio_rate=rate, audio_layout=layout
    )
    samples = sound_of(path).samples
    assert len(samples) == pytest.approx(2.0 * RATE, abs=0.1 * RATE)
    assert pitch(samples) == pytest.approx(440, abs=2)
    assert 0.15 < np.abs(samples).max() < 0.35


def test_the_report_names_the_sound(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", audio_seconds=1.0, audio_rate=44100, audio_layout="stereo")
    video = decode_here(path).video
    assert video.has_audio
    assert (video.audio_codec, video.audio_channels, video.audio_rate) == ("aac", 2, 44100)


def test_sound_that_starts_late_is_preceded_by_silence(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mkv", audio_seconds=1.0, audio_start=0.5, audio_codec="flac")
    samples = sound_of(path).samples
    assert np.abs(samples[: int(0.45 * RATE)]).max() == 0
    assert pitch(samples[int(0.55 * RATE) :]) == pytest.approx(440, abs=2)
    assert len(samples) == pytest.approx(1.5 * RATE, abs=0.02 * RATE)


def test_sound_before_the_first_picture_is_cut(tmp_path: Path) -> None:
    times = [1.0 + index / 10 for index in range(30)]
    path = write_video(tmp_path / "a.mkv", pts=times, audio_seconds=3.0, audio_codec="flac")
    assert len(sound_of(path).samples) == pytest.approx(2.0 * RATE, abs=0.02 * RATE)


def test_long_sound_is_cut_with_a_warning(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", audio_seconds=3.0)
    decoded = decode_here(path, DecodeRequest(audio_rate=RATE), Limits(audio_seconds=1.0))
    assert decoded.audio is not None
    assert len(decoded.audio.samples) == RATE
    assert [warning.code for warning in decoded.video.warnings] == ["audio_cut"]


def spoil_sound(path: Path, share: float) -> Path:
    """Overwrite the first ``share`` of the sound's packets."""
    import av

    with av.open(str(path)) as film:
        places = [(packet.pos, packet.size) for packet in film.demux(audio=0) if packet.size]
    content = bytearray(path.read_bytes())
    for start, size in places[: int(share * len(places))]:
        assert start is not None
        content[start : start + size] = b"\xff" * size
    path.write_bytes(content)
    return path


def test_damaged_sound_is_passed_over(tmp_path: Path) -> None:
    path = spoil_sound(write_video(tmp_path / "a.mov", audio_seconds=3.0), 0.5)
    decoded = decode_here(path, DecodeRequest(audio_rate=RATE))
    assert decoded.audio is not None
    assert "audio_damaged" in [warning.code for warning in decoded.video.warnings]
    assert pitch(decoded.audio.samples[-RATE:]) == pytest.approx(440, abs=2)


def test_sound_of_nothing_but_damage_is_absent(tmp_path: Path) -> None:
    path = spoil_sound(write_video(tmp_path / "a.mov", audio_seconds=1.0), 1.0)
    decoded = decode_here(path, DecodeRequest(audio_rate=RATE))
    assert decoded.audio is None
    assert [warning.code for warning in decoded.video.warnings] == ["audio_unreadable"]
    assert len(decoded.frames) == 8


def test_a_gap_in_the_sound_is_silence() -> None:
    buffer = SampleBuffer(rate=10, limit=100)
    buffer.append_at(np.ones(5, np.float32), 0.0)
    buffer.append_at(np.ones(5, np.float32), 1.0)
    assert buffer.to_audio().samples.tolist() == [1.0] * 5 + [0.0] * 5 + [1.0] * 5


def test_small_errors_of_time_are_no_gaps() -> None:
    buffer = SampleBuffer(rate=100, limit=1000)
    buffer.append_at(np.ones(50, np.float32), 0.0)
    buffer.append_at(np.ones(50, np.float32), 0.54)
    assert len(buffer.to_audio().samples) == 100


def test_the_tape_is_never_longer_than_its_limit() -> None:
    buffer = SampleBuffer(rate=10, limit=12)
    assert buffer.append_at(np.ones(5, np.float32), 1e9) is False
    assert len(buffer.to_audio().samples) == 12
