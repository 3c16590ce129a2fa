"""Squashing to a square agrees with Pillow's, which made the training pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from extractors.preprocess import squash, to_device


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
