"""decord is used only where it is right, and checked there frame by frame."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from extractors.decoder.decoder import Decoder
from extractors.media.decode import DecodeRequest, Limits, Sampling
from tests.media import numbered, read_number, write_gif, write_video

pytestmark = pytest.mark.skipif(find_spec("decord") is None, reason="decord2 absent")


@pytest.fixture(scope="module")
def decoder() -> Iterator[Decoder]:
    with Decoder("decord") as decoder:
        yield decoder


@pytest.mark.parametrize("sampling", [Sampling(5), Sampling(fps=1.7), Sampling(fps=25, max_frames=200)])
def test_closed_h264_in_mp4_gives_the_right_frames(
    sampling: Sampling, decoder: Decoder, tmp_path: Path
) -> None:
    path = write_video(tmp_path / "a.mp4", frames=120, painter=numbered, options={"g": "25"})
    decoded = decoder.decode(path, DecodeRequest(sampling))
    assert decoded.video.warnings == ()
    assert [read_number(picture) for picture in decoded.frames.pixels] == sorted(
        {int(instant * 10 + 1e-6) for instant in sampling.instants(12.0)}
    )


def test_size_and_sound_are_the_same_as_by_default(decoder: Decoder, tmp_path: Path) -> None:
    path = write_video(tmp_path / "a.mp4", width=320, height=180, audio_seconds=3.0)
    decoded = decoder.decode(path, DecodeRequest(short_side=90, audio_rate=16000))
    assert decoded.video.warnings == ()
    assert decoded.frames.pixels.shape == (8, 90, 160, 3)
    assert decoded.audio is not None


@pytest.mark.parametrize(
    ("name", "how", "reason"),
    [
        ("hevc.mp4", {"codec": "libx265", "options": {"x265-params": "log-level=none"}}, "H.264"),
        ("h264.mkv", {}, "mp4"),
        ("h264.ts", {}, "mp4"),
        (
            "open.mp4",
            {"options": {"x264-params": "open-gop=1:keyint=20:min-keyint=20:scenecut=0"}},
            "open groups",
        ),
        ("turned.mp4", {"rotation": 90}, "rotated"),
        ("long.mp4", {"fps": 1, "frames": 130}, "two minutes"),
    ],
)
def test_all_else_is_read_by_pyav_and_says_so(
    name: str, how: dict[str, Any], reason: str, decoder: Decoder, tmp_path: Path
) -> None:
    path = write_video(tmp_path / name, **{"frames": 100, "painter": numbered, **how})
    decoded = decoder.decode(path, DecodeRequest(Sampling(5)))
    warning = decoded.video.warnings[-1]
    assert warning.code == "reader_fallback"
    assert reason in warning.message
    if "rotation" not in how:
        frames = decoded.video.frames
        wanted = [int((k + 0.5) * frames / 5 + 1e-6) for k in range(5)]
        assert [read_number(picture) for picture in decoded.frames.pixels] == wanted


def test_a_webp_is_read_too(decoder: Decoder, tmp_path: Path) -> None:
    decoded = decoder.decode(write_gif(tmp_path / "a.webp", [100, 100]), limits=Limits(seconds=30))
    assert [warning.code for warning in decoded.video.warnings] == ["reader_fallback"]
