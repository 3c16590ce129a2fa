"""The benchmarks of cost count what they say: the fewest packets, files that differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import BUDGETS
from benchmarks.end_to_end import decode_fewest, find_ticks
from benchmarks.support.joined_film import encode_parts, write_joined
from benchmarks.support.served import copies_of
from extractors.media.decode import Sampling, decode_here
from extractors.media.request import DecodeRequest


def test_the_floor_decodes_the_frames_that_we_take(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    write_joined(film, encode_parts([])[:3], 12.0)
    times = decode_here(film, DecodeRequest(Sampling(count=8), short_side=64)).frames.pts
    groups = find_ticks(film, times)
    assert 1 < len(groups) <= 3  # a part is one group of pictures
    assert all(key <= ticks[0] for key, ticks in groups)
    assert decode_fewest(film, groups) == 8
    with pytest.raises(SystemExit, match="found 8 of the frames"):
        decode_fewest(film, [*groups[:-1], (groups[-1][0], [*groups[-1][1], 10**9])])


def test_a_slow_film_is_as_long_and_has_fewer_frames(tmp_path: Path) -> None:
    film = tmp_path / "film.mp4"
    write_joined(film, encode_parts([])[:3], 60.0, rate=5)
    video = decode_here(film).video
    assert video.fps_average == pytest.approx(5)
    assert video.duration >= 60.0


def test_copies_of_a_clip_differ() -> None:
    assert len({*copies_of(b"clip", 5), *copies_of(b"clip", 5, first=5)}) == 10


def test_the_benchmarks_of_the_list_are_there_and_take_six_minutes_at_most() -> None:
    folder = Path(__file__).resolve().parents[2] / "benchmarks"
    assert all((folder / f"{name}.py").is_file() for name in BUDGETS)
    assert sum(BUDGETS.values()) <= 6 * 60
