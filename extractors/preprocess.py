"""From decoded pictures to what an image network takes, on the device that will run it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from extractors.frame_size import PILLOW, Filter, kept_ratio


def to_device(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """Pictures as bytes on the device: a quarter of what floats would take on the way."""
    return torch.from_numpy(np.require(pixels, requirements=["C", "W"])).to(device)


def squash(pixels: Tensor, side: int) -> Tensor:
    """Whole pictures, uint8 (N, H, W, 3), as squares, uint8 (N, side, side, 3).

    Antialiased bilinear, the aspect ratio not kept, the result rounded to 8 bits as an image file would
    be. Devices agree to one level.
    """
    if pixels.shape[1:3] == (side, side):
        return pixels
    planes = pixels.permute(0, 3, 1, 2)
    if planes.device.type != "cpu":  # only the CPU's kernel takes bytes
        planes = planes.float()
    resized = F.interpolate(planes, (side, side), mode="bilinear", antialias=True)
    if resized.is_floating_point():
        resized = resized.round().clamp(0, 255).byte()
    return resized.permute(0, 2, 3, 1).contiguous()


def shrink_or_enlarge(pixels: Tensor, side: int, kernel: Filter = "bilinear") -> Tensor:
    """Whole pictures, uint8 (N, H, W, 3), with their shorter side of ``side`` pixels, the aspect ratio kept.

    Antialiased, rounded to 8 bits after each axis, the longer side cut to a whole number: on a CPU
    Pillow's very bytes, as the public extractors have them. Other devices agree to one level.
    """
    return resized(pixels, *kept_ratio(pixels.shape[1], pixels.shape[2], side), kernel)


def resized(pixels: Tensor, rows: int, columns: int, kernel: Filter = "bilinear") -> Tensor:
    """Whole pictures, uint8 (N, H, W, 3), as (N, rows, columns, 3), rounded as ``shrink_or_enlarge`` says."""
    if pixels.shape[1:3] == (rows, columns):
        return pixels
    return (_by_pillow if pixels.device.type == "cpu" else by_axes)(pixels, rows, columns, kernel)


def middle(x: Tensor, side: int, axes: tuple[int, int] = (1, 2)) -> Tensor:
    """The square of ``side`` in the middle of two axes; of an odd rest, the smaller part is before it."""
    for axis in axes:
        x = x.narrow(axis, (x.shape[axis] - side) // 2, side)
    return x


def _by_pillow(pixels: Tensor, rows: int, columns: int, kernel: Filter) -> Tensor:
    pictures = (Image.fromarray(picture) for picture in pixels.contiguous().numpy())
    resized = [picture.resize((columns, rows), PILLOW[kernel]) for picture in pictures]
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in resized]))


def by_axes(pixels: Tensor, rows: int, columns: int, kernel: Filter = "bilinear") -> Tensor:
    """What Pillow does, on any device: uint8 (N, H, W, 3) to (N, rows, columns, 3), columns first."""
    planes = pixels.permute(0, 3, 1, 2).float()
    for size in ((pixels.shape[1], columns), (rows, columns)):
        planes = F.interpolate(planes, size, mode=kernel, antialias=True).add(0.5).floor().clamp(0, 255)
    return planes.byte().permute(0, 2, 3, 1).contiguous()
