"""Bars of every kind are found to the pixel, and nothing that only looks dark is cut away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from extractors.features import WHOLE, Footage, FrameSize, Resizing, Stream, StreamSpec, place_within
from extractors.media.bars import find_picture, without_bars
from extractors.media.decode import DecodeRequest, Sampling, decode_here
from tests.extractors.moving import moving, put_in_bars
from tests.media import Picture, write_video

HEIGHT, WIDTH = 144, 256
BLACK, WHITE, BLUE = (0, 0, 0), (255, 255, 255), (16, 30, 120)


def film(height: int = HEIGHT, width: int = WIDTH) -> NDArray[np.uint8]:
    return moving(8, height, width).pixels


def darkened(pixels: NDArray[np.uint8], light: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The film by so much light (H, W), with a sensor's noise."""
    noise = np.random.default_rng(0).normal(2, 1, pixels.shape)
    return (pixels * light[..., None] + noise).clip(0, 255).astype(np.uint8)


def rings(squared: float) -> NDArray[np.float64]:
    y, x = np.mgrid[-1 : 1 : HEIGHT * 1j, -1 : 1 : WIDTH * 1j]
    return np.asarray(x**2 + y**2 < squared, np.float64)


@pytest.mark.parametrize("colour", [BLACK, WHITE, BLUE])
@pytest.mark.parametrize("size", [(144, 81), (108, 256), (144, 192), (108, 81), (130, 256)])
def test_bars_are_found_to_the_pixel(size: tuple[int, int], colour: tuple[int, int, int]) -> None:
    height, width = size
    top, left = (HEIGHT - height) // 2, (WIDTH - width) // 2
    expected = (left / WIDTH, top / HEIGHT, (left + width) / WIDTH, (top + height) / HEIGHT)
    assert find_picture(put_in_bars(film(*size), HEIGHT, WIDTH, colour)) == expected


def test_bars_of_a_compressed_film_are_found(tmp_path: Path) -> None:
    pixels = put_in_bars(moving(20, 160, 90).pixels, 160, 284)

    def painter(index: int, width: int, height: int) -> Picture:
        return np.asarray(pixels[index])

    path = write_video(
        tmp_path / "a.mp4", frames=20, width=284, height=160, painter=painter, options={"crf": "34"}
    )
    frames = decode_here(path, DecodeRequest(Sampling(8), 80)).frames
    assert find_picture(frames.pixels) == pytest.approx((97 / 284, 0, 187 / 284, 1), abs=1.5 / 142)


@pytest.mark.parametrize(
    "pixels",
    [
        film(),
        film()[:1],
        put_in_bars(film(144, 81)[:2], HEIGHT, WIDTH),
        np.zeros((8, HEIGHT, WIDTH, 3), np.uint8),
        darkened(film(), np.linspace(0, 1, HEIGHT)[:, None] * np.ones(WIDTH)),
        darkened(film(), rings(0.25)),
        darkened(film(), 0.04 * np.ones((HEIGHT, WIDTH))),
        darkened(film(), (np.random.default_rng(1).random((HEIGHT, WIDTH)) > 0.999).astype(np.float64)),
        np.concatenate([film()[:1], put_in_bars(film(144, 81)[1:], HEIGHT, WIDTH)]),
        np.roll(put_in_bars(film(144, 81), HEIGHT, WIDTH), 60, axis=2),
        put_in_bars(darkened(film(), 0.08 * np.ones((HEIGHT, WIDTH)))[:, :, :81], HEIGHT, WIDTH),
        put_in_bars(film(40, 40), HEIGHT, WIDTH),
        put_in_bars(film(140, 250), HEIGHT, WIDTH),
        np.tile(np.linspace(0, 255, WIDTH, dtype=np.uint8)[None, None, :, None], (8, HEIGHT, 1, 3)),
    ],
    ids=[
        "no bars", "a still", "two frames", "black", "sky", "fireworks", "night", "stars", "one without bars",
        "a bar on one side", "a night in bars", "a stamp", "a thin rim", "a slope",
    ],
)  # fmt: skip
def test_what_is_not_certain_is_left_whole(pixels: NDArray[np.uint8]) -> None:
    assert find_picture(pixels) == WHOLE


@pytest.mark.parametrize("place", [(136, 120), (2, 4)])
def test_bars_with_something_in_them_are_left(place: tuple[int, int]) -> None:
    """A subtitle, a clock: in some frames."""
    pixels = put_in_bars(film(108, 256), HEIGHT, WIDTH)
    pixels[3:5, place[0] : place[0] + 4, place[1] : place[1] + 20] = 255
    assert find_picture(pixels) == WHOLE


def test_a_fade_in_and_dark_scenes_between_leave_bars_what_they_are() -> None:
    pixels = film(144, 81)
    pixels[:3], pixels[6] = 0, 3
    assert find_picture(put_in_bars(pixels, HEIGHT, WIDTH)) == (87 / 256, 0, 168 / 256, 1)


def test_every_size_is_cut_and_sound_and_times_stay() -> None:
    alone = moving(8, 144, 80)
    squashed = FrameSize(None, Resizing((72, 64)))
    pixels = put_in_bars(alone.pixels, HEIGHT, WIDTH)
    footage = Footage(
        pixels, alone.pts, alone.duration, sized={squashed: squashed.shrink(pixels)}, shown=Sampling(4)
    )
    cut = without_bars(footage)
    assert np.array_equal(cut.pixels, alone.pixels)
    assert cut.view == (88 / 256, 0.0, 168 / 256, 1.0)
    assert cut.at(squashed).view == cut.view
    assert cut.at(squashed).pixels.shape == (8, 72, 20, 3)
    assert cut.shown == footage.shown
    assert without_bars(replace(footage, pixels=film())).pixels.shape == (8, HEIGHT, WIDTH, 3)


def test_parts_of_parts_are_placed_in_the_frame() -> None:
    assert place_within((0.25, 0.0, 0.75, 1.0), (0.5, 0.1, 1.0, 0.9)) == (0.5, 0.1, 0.75, 0.9)
    times = np.arange(1.0)
    boxes = torch.tensor([[[0.0, 0.0, 1.0, 1.0], [0.5, 0.1, 1.0, 0.9]]])
    stream = Stream(torch.zeros(1, 2, 3), times, times + 1, StreamSpec("n", "", ""), boxes)
    placed = stream.placed_within((0.25, 0.0, 0.75, 1.0))
    assert placed.view == (0.25, 0.0, 0.75, 1.0)
    assert placed.boxes is not None
    assert placed.boxes.tolist() == [[[0.25, 0.0, 0.75, 1.0], pytest.approx([0.5, 0.1, 0.75, 0.9])]]
