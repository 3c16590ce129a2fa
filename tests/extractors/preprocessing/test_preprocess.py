"""Squashing to a square agrees with Pillow's, which made the training pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from extractors.preprocessing.images import crop_middle, resize_by_axes, shrink_or_enlarge, squash, to_device


@pytest.mark.parametrize(("height", "width"), [(360, 640), (256, 144), (100, 90)])
def test_squash_agrees_with_pillow_to_one_level(height: int, width: int) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (2, height, width, 3), np.uint8)
    ours = squash(torch.from_numpy(pixels), 224)
    assert ours.dtype == torch.uint8
    for square, picture in zip(ours.numpy(), pixels, strict=True):
        pillow = np.asarray(Image.fromarray(picture).resize((224, 224), Image.Resampling.BILINEAR))
        assert np.abs(square.astype(int) - pillow).max() <= 1


def test_squares_pass_untouched() -> None:
    pixels = torch.randint(0, 256, (1, 224, 224, 3), dtype=torch.uint8)
    assert squash(pixels, 224) is pixels


def test_read_only_and_mirrored_pictures_are_taken() -> None:
    pixels = np.arange(24, dtype=np.uint8).reshape(1, 2, 4, 3)
    pixels.setflags(write=False)
    mirrored = to_device(pixels[:, :, ::-1], torch.device("cpu"))
    np.testing.assert_array_equal(mirrored.numpy(), pixels[:, :, ::-1])


@pytest.mark.parametrize(
    ("height", "width", "wanted"), [(120, 171, (96, 136)), (200, 81, (237, 96)), (96, 100, (96, 100))]
)
def test_the_shorter_side_is_pillows_to_the_byte(height: int, width: int, wanted: tuple[int, int]) -> None:
    """And what other devices do differs from it in one value in twenty at most, by one level."""
    pixels = np.random.default_rng(3).integers(0, 256, (2, height, width, 3), np.uint8)
    ours = shrink_or_enlarge(torch.from_numpy(pixels), 96)
    assert ours.shape == (2, *wanted, 3)
    for picture, original in zip(ours.numpy(), pixels, strict=True):
        size = (wanted[1], wanted[0])
        pillow = np.asarray(Image.fromarray(original).resize(size, Image.Resampling.BILINEAR))
        np.testing.assert_array_equal(picture, pillow)
    elsewhere = resize_by_axes(torch.from_numpy(pixels), *wanted)
    difference = (elsewhere.int() - ours.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 0.05


def test_the_middle_has_the_smaller_rest_before_it() -> None:
    x = torch.arange(7 * 4).reshape(1, 7, 4)
    assert crop_middle(x, 4).tolist() == x[:, 1:5].tolist()
    assert crop_middle(x[:, :4], 2, (1, 2)).tolist() == [[[5, 6], [9, 10]]]
