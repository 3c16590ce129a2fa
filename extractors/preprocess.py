"""From decoded pictures to what an image network takes, on the device that will run it."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor


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
