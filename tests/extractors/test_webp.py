from __future__ import annotations

from pathlib import Path

import pytest

from extractors import errors
from extractors.decode import DecodeRequest, Limits, Sampling, decode_here
from tests.media import cut, write_gif


def test_an_animated_webp_is_shown_by_its_delays(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [100, 500, 1000, 100, 300])
    decoded = decode_here(path, DecodeRequest(Sampling(fps=1), audio_rate=16000))
    assert decoded.video.container == "webp"
    assert decoded.video.frames == 5
    assert decoded.video.duration == pytest.approx(2.0)
    assert decoded.video.warnings == ()
    assert decoded.audio is None
    assert decoded.frames.pts == pytest.approx([0.0, 0.6])
    assert [int(picture[-4, -4, 0]) for picture in decoded.frames.pixels] == pytest.approx([0, 80], abs=8)


def test_it_is_made_small(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [100, 100], width=320, height=160)
    assert decode_here(path, DecodeRequest(short_side=80)).frames.pixels.shape == (2, 80, 160, 3)


def test_limits_hold_for_it_too(tmp_path: Path) -> None:
    path = write_gif(tmp_path / "a.webp", [1000, 1000, 1000])
    with pytest.raises(errors.TooManyPixels):
        decode_here(path, limits=Limits(pixels=3000))
    with pytest.raises(errors.TooLong):
        decode_here(path, limits=Limits(max_duration=2))
    with pytest.raises(errors.TooManyFrames):
        decode_here(path, limits=Limits(max_frames=2))
    with pytest.raises(errors.DecodeTimeout):
        decode_here(path, limits=Limits(seconds=0))


def test_a_cut_off_one_is_incomplete(tmp_path: Path) -> None:
    whole = write_gif(tmp_path / "a.webp", [100] * 20)
    with pytest.raises(errors.IncompleteFile):
        decode_here(cut(whole, tmp_path / "b.webp", 0.5))
