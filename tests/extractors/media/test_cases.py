"""Kinds of trouble that people reported with video files, each with its right value."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from extractors.decoder.decoder import Decoder
from extractors.media import errors
from extractors.media.decode import DecodeRequest, Limits, Sampling, decode_here
from tests.media import cut, without_index, write_gif, write_video

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)


def close_to(pixel: np.ndarray, colour: tuple[int, int, int], within: int = 40) -> bool:
    return bool((np.abs(pixel.astype(int) - colour) <= within).all())


def test_case_1_a_rotated_film_is_upright(tmp_path: Path) -> None:
    turned = decode_here(write_video(tmp_path / "a.mp4", rotation=90))
    picture = turned.frames.pixels[0]
    assert picture.shape == (64, 48, 3)
    assert (turned.video.width, turned.video.height, turned.video.rotation) == (48, 64, 90)
    assert close_to(picture[4, 4], GREEN)
    stored = decode_here(write_video(tmp_path / "b.mp4")).frames.pixels
    difference = turned.frames.pixels.astype(int) - np.rot90(stored, 1, axes=(1, 2))
    assert np.abs(difference).mean() < 1  # the two were encoded one by one


def test_case_2_a_single_frame_is_a_film(tmp_path: Path) -> None:
    decoded = decode_here(write_video(tmp_path / "a.mp4", frames=1))
    assert decoded.frames.pts.tolist() == [0.0]
    assert decoded.video.frames == 1
    assert decoded.frames.duration == pytest.approx(0.1)


def test_case_3_a_gif_is_shown_by_its_delays(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.gif", [100, 500, 1000, 100, 300])
    every = decode_here(path, DecodeRequest(Sampling(fps=100)))
    assert every.video.frames == 5
    assert every.frames.pts == pytest.approx([0.0, 0.1, 0.6, 1.6, 1.7])
    assert every.video.duration == pytest.approx(2.0)
    a_second = decode_here(path, DecodeRequest(Sampling(fps=1)))
    assert a_second.frames.pts == pytest.approx([0.0, 0.6])
    assert close_to(a_second.frames.pixels[1][-4, -4], (80, 80, 80), within=8)


def test_case_4_the_duration_is_the_pictures(tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", frames=20, audio_seconds=6.0)
    decoded = decode_here(path, DecodeRequest(Sampling(fps=10), audio_rate=16000))
    assert decoded.video.duration == pytest.approx(2.0)
    assert decoded.frames.pts.max() < 2.0
    greys = decoded.frames.pixels[:, -4, -4, 0].astype(int)
    assert (np.diff(greys) > 0).all()  # no frame is repeated to fill the time
    assert decoded.audio is not None
    assert len(decoded.audio.samples) == pytest.approx(6.0 * 16000, abs=1024)


def test_case_5_no_sound_and_little_sound(tmp_path: Path) -> None:
    silent = decode_here(write_video(tmp_path / "a.mp4"), DecodeRequest(audio_rate=16000))
    assert silent.audio is None
    assert not silent.video.has_audio
    assert silent.video.media()["audio_codec"] is None
    path = write_video(tmp_path / "b.mp4", frames=60, audio_seconds=0.5)
    short = decode_here(path, DecodeRequest(audio_rate=16000))
    assert short.video.has_audio
    assert short.video.audio_codec == "aac"
    assert short.audio is not None
    assert len(short.audio.samples) == pytest.approx(0.5 * 16000, abs=1024)


def test_case_7_no_index_is_an_incomplete_file_at_once(tmp_path: Path) -> None:
    path = without_index(write_video(tmp_path / "a.mp4"), tmp_path / "b.mp4")
    good = write_video(tmp_path / "c.mp4")
    with Decoder() as decoder:
        before, started = decoder.pid, time.monotonic()
        with pytest.raises(errors.IncompleteFile) as raised:
            decoder.decode(path)
        assert time.monotonic() - started < 10
        assert "incomplete" in raised.value.code
        assert len(decoder.decode(good).frames) == 8
        assert decoder.pid == before


def test_case_8_a_cut_off_film_gives_what_is_there(tmp_path: Path) -> None:
    whole = write_video(
        tmp_path / "a.mp4",
        frames=300,
        width=320,
        height=240,
        fps=30,
        options={"g": "30"},
        container_options={"movflags": "faststart"},
    )
    decoded = decode_here(cut(whole, tmp_path / "b.mp4", 0.6), DecodeRequest(Sampling(fps=30)))
    assert 147 <= decoded.video.frames <= 152
    assert decoded.video.frames_expected == 300
    assert [warning.code for warning in decoded.video.warnings] == ["incomplete"]
    assert "300" in decoded.video.warnings[0].message
    assert decoded.frames.pts.max() <= 4.97
    assert decoded.frames.duration <= 4.97


@pytest.mark.parametrize(("width", "height", "pix_fmt"), [(101, 57, "yuv444p"), (1294, 964, "yuv420p")])
def test_case_9_odd_sizes_are_clean_to_the_edge(
    width: int, height: int, pix_fmt: str, tmp_path: Path
) -> None:
    path = write_video(tmp_path / "a.mp4", frames=3, width=width, height=height, pix_fmt=pix_fmt)
    decoded = decode_here(path)
    assert (decoded.video.width, decoded.video.height) == (width, height)
    for picture in decoded.frames.pixels:
        for column in picture[: picture.shape[0] // 2 - 4, -8:].reshape(-1, 3):
            assert close_to(column, GREEN)


def test_case_12_a_time_limit_has_a_name(tmp_path: Path) -> None:
    path = write_video(
        tmp_path / "a.avi", frames=400, width=320, height=240, codec="mpeg4", options={"bf": "2"}
    )
    with Decoder() as decoder:
        with pytest.raises(errors.DecodeTimeout) as raised:
            decoder.decode(path, DecodeRequest(Sampling(fps=10)), Limits(seconds=0.01))
        assert raised.value.code == "decode_timeout"
        assert decoder.decode(path).video.frames == 400
