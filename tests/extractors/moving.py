"""Small videos in memory: smooth colours that drift, so that frames, places and channels all differ."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from extractors.features import Frames


def moving(count: int, height: int, width: int, fps: float = 10.0, seed: int = 0) -> Frames:
    """``count`` frames of one texture, each two columns to the left of, and one row above, the one before."""
    drawn = torch.rand(1, 3, 9, 12, generator=torch.Generator().manual_seed(seed))
    size = (height + count, width + 2 * count)
    canvas = F.interpolate(drawn, size, mode="bicubic", align_corners=False)[0]
    pixels = (canvas * 255).clamp(0, 255).byte().permute(1, 2, 0).numpy()
    frames = [pixels[t : t + height, 2 * t : 2 * t + width] for t in range(count)]
    return Frames(np.stack(frames), np.arange(count) / fps, count / fps)


def put_in_bars(
    pixels: NDArray[np.uint8], height: int, width: int, colour: tuple[int, int, int] = (0, 0, 0)
) -> NDArray[np.uint8]:
    """Puts frames (T, h, w, 3) into the middle of frames of one colour."""
    whole = np.full((len(pixels), height, width, 3), colour, np.uint8)
    top, left = (height - pixels.shape[1]) // 2, (width - pixels.shape[2]) // 2
    whole[:, top : top + pixels.shape[1], left : left + pixels.shape[2]] = pixels
    return whole
