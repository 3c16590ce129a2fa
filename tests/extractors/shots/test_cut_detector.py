"""Which frames begin a shot, and what only looks like a cut."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from extractors.shots.cut_detector import CutDetector, JudgedFrame
from tests.extractors.shots.scenes import texture
from tests.media import Picture

WIDTH, HEIGHT, FPS = 96, 64, 25


def judge(pictures: Iterable[Picture], fps: float = FPS) -> list[JudgedFrame]:
    detector, shown = CutDetector(), list(pictures)
    found = [each for number, picture in enumerate(shown) for each in detector.push(number / fps, picture)]
    return [*found, *detector.finish(len(shown) / fps)]


def cuts(pictures: Iterable[Picture], fps: float = FPS) -> list[int]:
    return [round(each.time * fps) for each in judge(pictures, fps) if each.is_cut]


def soft(scene: int, frames: int) -> list[Picture]:
    """Movement of middling contrast, as indoors and by day."""
    return [picture // 3 + np.uint8(80) for picture in moving(scene, frames)]


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


@pytest.mark.parametrize("fps", [10.0, 5.0, 2.0, 1.0, 0.5, 0.25])
def test_slides_are_cuts_however_few_frames_they_are_stored_in(fps: float) -> None:
    frames = round(4 * fps)
    slides = [texture(scene, WIDTH, HEIGHT) for scene in (1, 2, 3, 4) for _ in range(frames)]
    assert cuts(slides, fps) == [frames, 2 * frames, 3 * frames]


def test_a_frame_a_second_of_something_that_moves_is_no_cut_but_another_scene_is() -> None:
    assert cuts([*moving(1, 12, step=8), *moving(2, 12, step=8)], fps=1.0) == [12]


def test_bars_a_desk_around_a_window_and_grey_hide_no_cut() -> None:
    scenes = [picture for scene in (1, 2, 3) for picture in soft(scene, 20)]
    black, white = (np.full((128, 320, 3), value, np.uint8) for value in (0, 255))
    for around in (black, white, texture(9, 320, 128)):
        framed = [np.array(around) for _ in scenes]
        for whole, picture in zip(framed, scenes, strict=True):
            whole[32:96, 110:206] = picture
        assert cuts(framed) == [20, 40]
    assert cuts(np.repeat(picture[..., 1:2], 3, axis=2) for picture in scenes) == [20, 40]


def test_a_flash_is_no_cut_and_a_fade_through_black_is_one() -> None:
    flashed = moving(1, 40)
    flashed[20] = np.full_like(flashed[20], 250)
    assert cuts(flashed) == []
    light = np.minimum(1.0, np.abs(np.linspace(-2, 2, 101)))
    shown = zip([*moving(1, 50), *moving(2, 51)], light, strict=True)
    [cut] = cuts((picture * value).astype(np.uint8) for picture, value in shown)
    assert 50 <= cut <= 56


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
