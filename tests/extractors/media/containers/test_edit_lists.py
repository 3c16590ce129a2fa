"""Edit lists as recorders and cutters write them: what they show of a film is what is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from extractors.media.containers.edit_lists import extend_last_edits, leave_out_edits
from extractors.media.decode import decode_here
from extractors.media.media_file import HandedFile
from extractors.media.request import Decoded, DecodeRequest
from extractors.windows import Sampling
from tests.extractors.films import write_edits
from tests.media import numbered, read_number, write_gif, write_video

ALL = DecodeRequest(Sampling(fps=100))
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}


@pytest.fixture(scope="module", params=["mp4", "mov"])
def film(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 frames in 3 s, a key frame each second, with sound."""
    path = tmp_path_factory.mktemp("film") / f"a.{request.param}"
    options = {"bf": "0", "g": "10"}
    return write_video(path, frames=30, painter=numbered, options=options, audio_seconds=3.0)


def frames_of(decoded: Decoded) -> list[int | None]:
    return [read_number(picture) for picture in decoded.frames.pixels]


@pytest.mark.parametrize(
    ("edits", "frames", "first"),
    [
        ([(0, 0)], range(30), 0.0),
        ([(0, 1.0)], range(10, 30), 0.0),
        ([(0, 1.5)], range(15, 30), 0.0),
        ([(1.0, -1), (0, 0)], range(30), 1.0),
        ([(1.0, 0), (0, 2.0)], [*range(10), *range(20, 30)], 0.0),
        ([(0, 0), (1.0, 1.0)], range(10, 20), 0.0),
        ([(100.0, 1.0)], range(10, 30), 0.0),
        ([], range(30), 0.0),
    ],
)
@pytest.mark.parametrize("wide", [False, True])
def test_a_last_edit_of_no_length_goes_on_to_the_end(
    edits: list[tuple[float, float]],
    frames: list[int],
    first: float,
    wide: bool,
    film: Path,
    tmp_path: Path,
) -> None:
    decoded = decode_here(write_edits(film, tmp_path / film.name, edits, wide=wide), ALL)
    assert frames_of(decoded) == list(frames)
    assert decoded.video.duration == pytest.approx(len(frames) / 10)
    assert decoded.video.first_picture == pytest.approx(first, abs=0.001)
    assert [warning.code for warning in decoded.video.warnings if warning.code != "fewer_frames"] == []


@pytest.mark.parametrize(
    "edits",
    [[(1.0, -1)], [(1.0, -1), (2.0, -1)], [(1.0, 10.0)], [(0, 10.0)], [(0, -1)], [(1, 7.0), (1, 9.0)]],
)
def test_edits_that_show_nothing_are_passed_over(
    edits: list[tuple[float, float]], film: Path, tmp_path: Path
) -> None:
    path = write_edits(film, tmp_path / film.name, edits)
    before = path.read_bytes()
    descriptor = os.open(path, os.O_RDONLY)
    try:
        for file in (path, HandedFile(descriptor)):
            decoded = decode_here(file, ALL)
            assert frames_of(decoded) == list(range(30))
            assert decoded.video.duration == pytest.approx(3.0)
            assert "edits_passed_over" in [warning.code for warning in decoded.video.warnings]
    finally:
        os.close(descriptor)
    assert path.read_bytes() == before


def test_sound_goes_on_with_the_pictures(film: Path, tmp_path: Path) -> None:
    path = write_edits(film, tmp_path / film.name, [(0, 1.0)])
    decoded = decode_here(path, DecodeRequest(audio_rate=16000))
    assert decoded.audio is not None
    assert len(decoded.audio.samples) / 16000 == pytest.approx(3.0, abs=0.2)


def test_an_edit_of_no_length_in_fragments_shows_them(tmp_path: Path) -> None:
    options = {"bf": "0", "g": "10"}
    film = write_video(tmp_path / "a.mp4", painter=numbered, options=options, container_options=FRAGMENTS)
    decoded = decode_here(write_edits(film, tmp_path / "b.mp4", [(0, 0)]), ALL)
    assert frames_of(decoded) == list(range(30))
    assert decoded.video.first_picture == 0.0


def test_files_without_such_edits_are_read_as_they_are(film: Path, tmp_path: Path) -> None:
    assert extend_last_edits(film) == ()
    for name in ("a.gif", "b.mkv"):
        path = tmp_path / name
        write_gif(path, [100, 200]) if name == "a.gif" else write_video(path)
        assert extend_last_edits(path) == leave_out_edits(path) == ()


@pytest.mark.parametrize("length", [1 << 62, 1 << 63, (1 << 64) - 1])
def test_a_box_longer_than_any_file_ends_no_reading(length: int, film: Path, tmp_path: Path) -> None:
    path = tmp_path / film.name
    path.write_bytes(film.read_bytes() + b"\0\0\0\1free" + length.to_bytes(8))
    assert decode_here(path).video.frames == 30
