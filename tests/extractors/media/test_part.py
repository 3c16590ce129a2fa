"""A part of a file is decoded and described as if nothing else were in it."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from extractors.decoder.decoder import Decoder
from extractors.features import Footage
from extractors.media import decode
from extractors.media.containers.packet_index import read_index
from extractors.media.decode import decode_here
from extractors.media.errors import NoFrames, TooManyFrames
from extractors.media.request import DecodeRequest, Limits, cut_clip
from extractors.windows import Sampling, Windows
from tests.media import numbered, read_number, write_video


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six seconds at ten frames a second, with a key frame every second and sound."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    return write_video(path, frames=60, painter=numbered, options={"g": "10"}, audio_seconds=6.0)


def decoded(film: Path, request: DecodeRequest, part: tuple[float, float]) -> Footage:
    return cut_clip(decode_here(film, request).footage, *part)


def numbers(footage: Footage) -> list[int | None]:
    return [read_number(picture) for picture in footage.pixels]


def test_frames_spread_over_the_part_alone(film: Path) -> None:
    part = (2.0, 4.0)
    found = decoded(film, DecodeRequest(Sampling(count=4), part=part), part)
    assert numbers(found) == [22, 27, 32, 37]
    assert found.duration == 2.0
    np.testing.assert_allclose(found.pts, [0.2, 0.7, 1.2, 1.7])


def test_windows_are_cut_at_the_files_own_rate(film: Path) -> None:
    part, windows = (2.5, 4.5), Windows(stack_size=2, step_size=5)
    found = decoded(film, DecodeRequest(windows=(windows,), part=part), part)
    assert numbers(found) == [25, 26, 30, 31, 35, 36, 40, 41]
    assert found.rate == pytest.approx(10)
    cut = windows.cut(found.duration, found.rate)
    assert len(cut) == 4
    assert all(np.abs(found.pts - instant).min() <= 0.06 for instant in cut.instants)


def test_the_frame_on_screen_at_the_start_belongs_to_the_part(film: Path) -> None:
    part = (2.25, 2.45)
    found = decoded(film, DecodeRequest(Sampling(count=9), part=part), part)
    assert numbers(found) == [22, 23, 24]
    np.testing.assert_allclose(found.pts, [0.0, 0.05, 0.15])


def test_a_part_ends_with_its_file(film: Path) -> None:
    part = (5.0, 60.0)
    found = decoded(film, DecodeRequest(Sampling(count=2), part=part), part)
    assert numbers(found) == [52, 57]
    assert found.duration == pytest.approx(1.0)


def test_the_sound_is_the_parts(film: Path) -> None:
    part = (2.0, 3.5)
    found = decoded(film, DecodeRequest(audio_rate=16000, part=part), part)
    assert found.sound is not None
    assert len(found.sound.samples) == 24000


def test_a_part_behind_the_end_is_no_video(film: Path) -> None:
    with (
        Decoder() as decoder,
        pytest.raises(NoFrames, match=r"lasts 6.0 seconds, and its part begins at 7.0"),
    ):
        decoder.decode(film, DecodeRequest(part=(7.0, 9.0)))


def test_the_decoding_process_is_asked_for_the_same(film: Path) -> None:
    request = DecodeRequest(Sampling(count=3), part=(1.0, 5.0))
    with Decoder() as decoder:
        there = decoder.decode(film, request)
    np.testing.assert_array_equal(there.frames.pixels, decode_here(film, request).frames.pixels)


def test_a_film_is_examined_once_for_all_its_parts(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading all packets for each segment would cost the square of a film's length."""
    reader = Mock(wraps=read_index)
    monkeypatch.setattr(decode, "read_index", reader)
    copy = film.with_name("copy.mp4")
    copy.write_bytes(film.read_bytes())
    for start in (0.0, 2.0, 4.0):
        decode_here(copy, DecodeRequest(Sampling(count=1), part=(start, start + 1)))
    assert reader.call_count == 1
    longer = write_video(copy, frames=80, painter=numbered, options={"g": "10"})
    found = decode_here(longer, DecodeRequest(Sampling(count=1), part=(7.0, 8.0)))
    assert numbers(found.footage) == [75]
    with pytest.raises(TooManyFrames):
        decode_here(longer, DecodeRequest(part=(0.0, 1.0)), Limits(max_frames=70))
