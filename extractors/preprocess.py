"""From decoded pictures to what an image network takes, on the device that will run it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

NATIVE_UINT8 = {"cpu"}  # devices whose antialiased resize takes bytes as they are


def squash(pixels: Tensor, side: int) -> Tensor:
    """Whole pictures, uint8 (N, H, W, 3), as squares, uint8 (N, side, side, 3).

    Antialiased bilinear, the aspect ratio not kept, the result rounded to 8 bits as an image file would be.
    Devices agree to one level.
    """
    if pixels.shape[1:3] == (side, side):
        return pixels
    channels_first = pixels.permute(0, 3, 1, 2)
    if pixels.device.type not in NATIVE_UINT8:
        channels_first = channels_first.float()
    resized = F.interpolate(channels_first, (side, side), mode="bilinear", antialias=True)
    if resized.dtype != torch.uint8:
        resized = resized.round().clamp(0, 255).byte()
    return resized.permute(0, 2, 3, 1).contiguous()
