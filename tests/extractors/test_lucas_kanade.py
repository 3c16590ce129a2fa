"""The classical flow: known shifts, far and near, of a texture; stillness; the order of its channels."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from extractors.lucas_kanade import LucasKanade, warped

HEIGHT, WIDTH, MARGIN = 160, 200, 32


@pytest.fixture(scope="module")
def texture() -> Tensor:
    """(1, 3, H, W) of 0..255, coarse shapes under finer ones, with a margin on all sides."""
    generator = torch.Generator().manual_seed(0)
    size = (HEIGHT + 2 * MARGIN, WIDTH + 2 * MARGIN)
    layers = [
        weight * F.interpolate(torch.rand(1, 3, n, n, generator=generator), size, mode="bicubic")
        for n, weight in ((20, 200.0), (70, 55.0))
    ]
    return (layers[0] + layers[1]).clamp(0, 255)


def inside(pictures: Tensor) -> Tensor:
    return pictures[:, :, MARGIN:-MARGIN, MARGIN:-MARGIN]


@pytest.mark.parametrize("shift", [(0.0, 0.0), (0.3, -0.2), (3.5, -2.25), (-11.0, 6.0)])
def test_a_known_shift_is_found(texture: Tensor, shift: tuple[float, float]) -> None:
    """Content moves by the shift, so that what is at p in the first picture is at p + shift in the second."""
    moved = torch.tensor(shift).view(1, 2, 1, 1).expand(1, 2, *texture.shape[2:])
    second = torch.cat([warped(channel, -moved) for channel in texture.split(1, 1)], 1)
    flow = LucasKanade()(inside(texture), inside(second))
    assert flow.shape == (1, 2, HEIGHT, WIDTH)
    error = (flow - moved[:, :, :HEIGHT, :WIDTH]).norm(dim=1)[:, 24:-24, 24:-24]
    assert error.median() < 0.15
    assert error.quantile(0.95) < 0.5


def test_pictures_of_a_batch_do_not_mix(texture: Tensor) -> None:
    still = inside(texture)
    both = torch.cat([still, still.flip(3)])
    seconds = torch.cat([still.roll(2, 3), still.flip(3)])
    together = LucasKanade()(both, seconds)
    torch.testing.assert_close(together[:1], LucasKanade()(both[:1], seconds[:1]), atol=1e-3, rtol=0)
    assert together[1].abs().max() < 1e-3


def test_what_has_no_texture_stays_where_it_is() -> None:
    grey = torch.full((1, 3, 64, 64), 100.0)
    assert LucasKanade()(grey, grey + 20).abs().max() < 1e-3
