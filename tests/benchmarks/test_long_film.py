"""The benchmark of long films knows its cuts, and notices what it is there to notice."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.long_film import KILLED_AFTER, run
from benchmarks.support.joined_film import LONGEST, RATE, SHORTEST, encode_parts, write_joined
from benchmarks.support.segment_run import is_near
from extractors.media.decode import decode_here

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    path = tmp_path_factory.mktemp("films") / "film.mp4"
    return path, write_joined(path, encode_parts([]), 60.0)


def test_a_joined_film_is_as_long_as_asked_and_plays(film: tuple[Path, list[float]]) -> None:
    path, cuts = film
    video = decode_here(path).video
    assert 60.0 <= video.duration < 60.0 + LONGEST
    assert video.fps_average == pytest.approx(RATE)
    assert video.warnings == ()
    assert all(
        SHORTEST <= later - earlier <= LONGEST for earlier, later in zip([0.0, *cuts], cuts, strict=False)
    )


def test_a_run_tells_the_borders_of_all_segments(film: tuple[Path, list[float]], tmp_path: Path) -> None:
    path, cuts = film
    told = run(path, tmp_path, captioner=False)
    starts = [line["start"] for line in told.lines][1:]
    assert len(starts) == len(cuts)
    assert all(is_near(cut, starts) for cut in cuts)
    assert told.peak > 50 << 20
    assert len(told.end["document"]["segments"]) <= len(told.lines)


def test_a_killed_run_leaves_what_it_had(film: tuple[Path, list[float]], tmp_path: Path) -> None:
    path, cuts = film
    killed = run(path, tmp_path, captioner=False, kill_after=KILLED_AFTER)
    assert len(killed.lines) == KILLED_AFTER
    gone_on = run(path, tmp_path, captioner=False)
    assert KILLED_AFTER - 1 <= gone_on.end["known"] <= len(cuts) + 1
    assert len(gone_on.lines) == len(cuts) + 1
