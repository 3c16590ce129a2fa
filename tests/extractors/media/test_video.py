from __future__ import annotations

from pathlib import Path

import pytest

from extractors.media.decode import decode_here
from tests.media import write_video


def test_the_report_of_an_ordinary_film(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=60, fps=30, audio_seconds=2.0, width=96, height=64)
    assert decode_here(path).video.media() == {
        "container": "mov,mp4,m4a,3gp,3g2,mj2",
        "codec": "h264",
        "duration": pytest.approx(2.0),
        "width": 96,
        "height": 64,
        "rotation": 0,
        "fps": 30.0,
        "fps_average": pytest.approx(30.0),
        "frames": 60,
        "frames_expected": 60,
        "frames_counted": False,
        "frames_lost": 0,
        "times_estimated": False,
        "has_audio": True,
        "audio_codec": "aac",
        "audio_channels": 1,
        "audio_rate": 16000,
        "first_picture": 0.0,
    }


def test_the_average_rate_is_what_was_shown(tmp_path: Path) -> None:
    times = [0.0, 0.1, 0.2, 0.3, 1.8, 1.9]
    video = decode_here(write_video(tmp_path / "a.mkv", frames=6, pts=times)).video
    assert video.frames == 6
    assert video.fps_average == pytest.approx(6 / video.duration)
    assert 1.9 < video.duration < 2.1


def test_a_container_that_claims_nothing_is_asked_for_nothing(tmp_path: Path) -> None:
    video = decode_here(write_video(tmp_path / "a.mkv")).video
    assert video.frames_expected is None
    assert video.warnings == ()


@pytest.mark.parametrize("ending", ["mp4", "mov", "mkv", "ts"])
def test_a_picture_that_begins_late_is_told_on_the_clock_of_players(tmp_path: Path, ending: str) -> None:
    times = [3.0 + k / 10 for k in range(20)]
    video = decode_here(write_video(tmp_path / f"a.{ending}", frames=20, pts=times, audio_seconds=6.0)).video
    assert video.first_picture == pytest.approx(3.0, abs=0.1)
    assert video.duration == pytest.approx(2.0, abs=0.1)


def test_a_transport_stream_without_sound_begins_with_its_picture(tmp_path: Path) -> None:
    assert decode_here(write_video(tmp_path / "a.ts")).video.first_picture == 0.0
