"""How detectors get their pictures: the edge, the channels, the mean, the zeros around."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image

from extractors.features import fit_between
from extractors.preprocessing.detection import DetectionInput, to_bgr_planes

INPUT = DetectionInput((10.0, 20.0, 30.0), (1.0, 2.0, 4.0), shortest=48, longest=80, multiple=32)


@pytest.mark.parametrize(
    ("height", "width", "wanted"),
    [(480, 640, (800, 1067)), (640, 480, (1067, 800)), (720, 1280, (750, 1333)), (800, 800, (800, 800))],
)
def test_the_shortest_edge_is_asked_for_and_the_longest_a_limit(
    height: int, width: int, wanted: tuple[int, int]
) -> None:
    """detectron2's sizes for COCO's and a video's pictures."""
    assert fit_between(height, width, 800, 1333) == wanted


def test_frames_are_resized_to_pillows_bytes() -> None:
    frames = np.random.default_rng(1).integers(0, 256, (2, 30, 40, 3), np.uint8)
    made = INPUT.resize(torch.from_numpy(frames))
    assert made.shape == (2, 48, 64, 3)
    pillow = Image.fromarray(frames[1]).resize((64, 48), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(made[1].numpy(), np.asarray(pillow))
    assert INPUT.resize(made) is made


def test_blue_is_first_the_mean_is_off_and_zeros_are_around() -> None:
    frames = torch.tensor([50, 40, 30], dtype=torch.uint8).expand(1, 40, 33, 3)  # red, green, blue
    planes = to_bgr_planes(frames)
    assert planes[0, :, 0, 0].tolist() == [30, 40, 50]
    x = INPUT.normalise(planes)
    assert x.shape == (1, 3, 64, 64)
    assert x[0, :, 39, 32].tolist() == [20, 10, 5]
    assert not x[:, :, 40:].any()
    assert not x[:, :, :, 33:].any()
