"""Which frames begin a shot, and what only looks like a cut."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from extractors.shots.cut_detector import CutDetector, JudgedFrame
from tests.extractors.shots.scenes import texture
from tests.media import Picture

WIDTH, HEIGHT, FPS = 96, 64, 25


def judge(pictures: Iterable[Picture]) -> list[JudgedFrame]:
    detector = CutDetector()
    found = [each for number, picture in enumerate(pictures) for each in detector.push(number / FPS, picture)]
    return [*found, *detector.finish(len(found) / FPS)]


def cuts(pictures: Iterable[Picture]) -> list[int]:
    return [round(each.time * FPS) for each in judge(pictures) if each.is_cut]


def moving(scene: int, frames: int, step: int = 1) -> list[Picture]:
    return [np.roll(texture(scene, WIDTH, HEIGHT), step * number, axis=1) for number in range(frames)]


def test_each_frame_comes_back_in_its_turn_and_the_first_of_a_shot_is_marked() -> None:
    pictures = [*moving(1, 20), *moving(2, 15), *moving(3, 20)]
    found = judge(pictures)
    assert [round(each.time * FPS) for each in found] == list(range(55))
    assert all(each.pixels is picture for each, picture in zip(found, pictures, strict=True))
    assert [round(each.time * FPS) for each in found if each.is_cut] == [20, 35]


def test_a_fast_movement_is_no_cut() -> None:
    assert cuts(moving(1, 40, step=12)) == []


@pytest.mark.parametrize("times", [2, 4])
def test_movement_stored_at_more_frames_than_it_was_drawn_at_is_no_cut(times: int) -> None:
    drawn = moving(1, 15, step=16)
    assert cuts(picture for picture in drawn for _ in range(times)) == []


def test_a_slide_that_follows_a_slide_is_a_cut() -> None:
    slides = [texture(scene, WIDTH, HEIGHT) for scene in (1, 2, 3) for _ in range(50)]
    assert cuts(slides) == [50, 100]


def test_a_still_picture_does_not_pile_up() -> None:
    detector, given = CutDetector(), 0
    for number in range(200):
        given += len(list(detector.push(number / FPS, texture(1, WIDTH, HEIGHT))))
        assert number - given < 20


def test_a_tint_of_the_dark_is_no_cut() -> None:
    tints = [(16, 4, 0), (0, 4, 16)]
    pictures = [np.full((HEIGHT, WIDTH, 3), tints[number // 10 % 2], np.uint8) for number in range(60)]
    assert cuts(pictures) == []


def test_a_picture_of_one_pixel_and_a_narrow_one_are_judged() -> None:
    for shape in ((1, 1, 3), (2, 400, 3), (400, 2, 3)):
        assert len(judge([np.zeros(shape, np.uint8)] * 10)) == 10
