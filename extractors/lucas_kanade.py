"""A classical optical flow that needs no weights: Lucas and Kanade's, dense, from coarse to fine.

Lucas and Kanade, IJCAI 1981, with the pyramid and the iterated warps of Bouguet, "Pyramidal Implementation
of the Lucas Kanade Feature Tracker", 2001. Far below RAFT where things move differently side by side or have
no texture, and some twenty times as cheap. Flow is in pixels, (dx, dy), of the first picture.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LUMINANCE = (0.299, 0.587, 0.114)
#: Sides below which the pyramid ends: a window would see the whole picture.
SMALLEST = 24


class LucasKanade(nn.Module):
    """Flow between pictures.

    Pictures are float (N, 3, H, W), RGB 0..255; the flow is (N, 2, H, W). levels: of the pyramid at most;
    updates: warps a level; window: deviation, in pixels, of the weights by which neighbours count;
    floor: squared grey levels added to the gradients' own, so that flat parts stay where they are.
    """

    def __init__(self, levels: int = 5, updates: int = 4, window: float = 3.0, floor: float = 1.0) -> None:
        super().__init__()
        self.levels, self.updates, self.floor = levels, updates, floor
        self.smooth: Tensor
        self.weights: Tensor
        self.register_buffer("smooth", gaussian(0.8), persistent=False)
        self.register_buffer("weights", gaussian(window), persistent=False)

    def __str__(self) -> str:
        return f"Lucas-Kanade flow, {self.levels} levels, {self.updates} warps"

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        pyramids = list(zip(self._pyramid(first), self._pyramid(second), strict=True))
        coarsest = pyramids[-1][0]
        flow = coarsest.new_zeros(len(coarsest), 2, *coarsest.shape[2:])
        for below, above in reversed(pyramids):
            flow = self._refined(below, above, enlarged(flow, below.shape[2], below.shape[3]))
        return flow

    def _pyramid(self, pictures: Tensor) -> list[Tensor]:
        """Grey pictures (N, 1, H, W), each level half of the one before."""
        grey = (pictures * pictures.new_tensor(LUMINANCE).view(1, 3, 1, 1)).sum(1, keepdim=True)
        levels = [blurred(grey, self.smooth)]
        while len(levels) < self.levels and min(levels[-1].shape[2:]) >= 2 * SMALLEST:
            levels.append(blurred(F.avg_pool2d(levels[-1], 2), self.smooth))
        return levels

    def _refined(self, first: Tensor, second: Tensor, flow: Tensor) -> Tensor:
        """The flow of one level: least squares over each pixel's neighbours, again after each warp."""
        x, y = gradients(first)
        xx, xy, yy = (blurred(product, self.weights) for product in (x * x, x * y, y * y))
        xx, yy = xx + self.floor, yy + self.floor
        determinant = xx * yy - xy * xy
        for _ in range(self.updates):
            change = warped(second, flow) - first
            xt, yt = blurred(x * change, self.weights), blurred(y * change, self.weights)
            step = torch.cat([xy * yt - yy * xt, xy * xt - xx * yt], 1) / determinant
            # a longer step than the gradients reach is a guess
            flow = blurred(flow + step.clamp(-1, 1), self.smooth)
        return flow


def gaussian(deviation: float) -> Tensor:
    """Weights (K,) that sum to one, three deviations to each side."""
    reach = round(3 * deviation)
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / deviation) ** 2)
    return weights / weights.sum()


def blurred(x: Tensor, weights: Tensor) -> Tensor:
    """Both axes of (N, C, H, W) by the same weights, the edges repeated outwards."""
    reach, channels = len(weights) // 2, x.shape[1]
    kernel = weights.repeat(channels, 1, 1, 1)
    x = F.conv2d(F.pad(x, (reach, reach, 0, 0), mode="replicate"), kernel, groups=channels)
    return F.conv2d(F.pad(x, (0, 0, reach, reach), mode="replicate"), kernel.mT, groups=channels)


def gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """Central differences of (N, 1, H, W) along columns and along rows."""
    wide = F.pad(x, (1, 1, 1, 1), mode="replicate")
    return (
        (wide[:, :, 1:-1, 2:] - wide[:, :, 1:-1, :-2]) / 2,
        (wide[:, :, 2:, 1:-1] - wide[:, :, :-2, 1:-1]) / 2,
    )


def enlarged(flow: Tensor, height: int, width: int) -> Tensor:
    """Flow (N, 2, h, w) on a finer grid, in its pixels."""
    scale = flow.new_tensor([width / flow.shape[3], height / flow.shape[2]]).view(1, 2, 1, 1)
    return F.interpolate(flow, (height, width), mode="bilinear", align_corners=False) * scale


def warped(pictures: Tensor, flow: Tensor) -> Tensor:
    """The pictures (N, 1, H, W) seen from the first ones: what lies at each pixel plus its flow."""
    height, width = pictures.shape[2:]
    columns = torch.arange(width, device=flow.device) + flow[:, 0]
    rows = torch.arange(height, device=flow.device)[:, None] + flow[:, 1]
    grid = torch.stack([(2 * columns + 1) / width - 1, (2 * rows + 1) / height - 1], -1)
    return F.grid_sample(pictures, grid, mode="bilinear", padding_mode="border", align_corners=False)
