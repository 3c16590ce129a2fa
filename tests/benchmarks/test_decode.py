"""Readers are asked for the same frames, and what they return is read off the pictures."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from benchmarks.decode import SAMPLINGS, choose, make_request, make_rows
from benchmarks.support.film_shapes import SHAPES, UNEVEN, FilmShape, draw_planes, read_bars
from benchmarks.support.video_readers import FLOORS, OURS, Reading, list_readers, serve

TINY = FilmShape("tiny VFR", ".mkv", "libx264", 320, 180, 60, {"g": "20", "bf": "2"}, UNEVEN)


@pytest.fixture(scope="module")
def tiny_film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TINY.draw(tmp_path_factory.mktemp("films") / TINY.file_name)


def test_the_six_shapes_are_there() -> None:
    assert [shape.name for shape in SHAPES] == ["long GOP", "open GOP", "VFR", "TS", "4K HEVC", "AV1"]
    assert len({shape.file_name for shape in SHAPES}) == len(SHAPES)


def test_bars_tell_a_frames_number_in_any_size() -> None:
    planes = [planes for planes, _ in zip(draw_planes(320, 180), range(40), strict=False)]
    pictures = np.repeat(np.stack(planes)[:, :180, :, None], 3, axis=3)
    assert read_bars(pictures) == list(range(40))
    assert read_bars(pictures[:, ::3, ::3]) == list(range(40))


@pytest.mark.parametrize("asked_for", SAMPLINGS)
def test_readers_that_are_here_are_asked_for_the_same_frames(asked_for: str, tiny_film: Path) -> None:
    sampling = SAMPLINGS[asked_for]
    request = make_request(TINY, tiny_film, sampling)
    wanted = choose(TINY, sampling)
    assert len(request.seconds) == len(wanted)
    names, missing = list_readers()
    assert names[0] == OURS
    assert not set(names) & set(missing)
    for name in {OURS, "decord", FLOORS[1]} & {*names, FLOORS[1]}:
        (answer,) = serve(name, iter([json.dumps(asdict(request))]))
        told = Reading(**json.loads(answer))
        assert told.error == ""
        assert told.cpu > 0
        assert list(told.numbers) == ([] if name in FLOORS else wanted), name


def test_what_a_peer_cannot_read_is_told_and_wrong_frames_are_counted(tiny_film: Path) -> None:
    request = make_request(TINY, tiny_film, SAMPLINGS["8 frames"])
    (answer,) = serve(OURS, iter([json.dumps({**asdict(request), "path": "nowhere.mp4"})]))
    assert json.loads(answer)["error"] == "MissingFile"
    ours, peer = Reading(1.0, 2.0, (1, 2, 3)), Reading(3.0, 4.0, (1, 5), "ValueError")
    (row,) = make_rows("film", {OURS: [ours], "decord": [peer]}, [1, 2, 3])
    assert row.ratio is None  # what failed was not quick
    assert row.note == "right 3 / 1 of 3; wall 2.00 / 4.00 s, it failed: ValueError"
    (row,) = make_rows("film", {OURS: [ours], "decord": [Reading(3.0, 4.0, (1, 5))]}, [1, 2, 3])
    assert row.ratio == 3.0
