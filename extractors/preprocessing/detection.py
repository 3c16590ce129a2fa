"""Prepares pictures for detectors: the shortest edge to a length, blue first, the mean taken off."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from extractors.features import Resizing
from extractors.preprocessing.images import resize


@dataclass(frozen=True)
class DetectionInput:
    """Prepares pictures as a checkpoint takes them, in the detectors' own terms."""

    mean: tuple[float, float, float]  #: of the bytes, blue first
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)  #: what they are divided by
    shortest: int = 800  #: pixels of the shorter edge
    longest: int = 1333  #: pixels that the longer edge may have
    multiple: int = 1  #: zeros are put right and below to sides that this divides

    @property
    def preprocessing(self) -> str:
        """Describes it for a stream's name tag."""
        return (
            f"shortest edge {self.shortest}, longest at most {self.longest}, Pillow's bilinear on bytes; "
            f"BGR, (x - {list(self.mean)}) / {list(self.std)}; zeros to a multiple of {self.multiple}"
        )

    @property
    def resizing(self) -> Resizing:
        """The resizing of whole pictures."""
        return Resizing(self.shortest, self.longest)

    def normalise(self, planes: Tensor) -> Tensor:
        """Normalises planes (N, 3, H, W) of bytes, blue first, and pads them."""
        mean, std = (planes.new_tensor(v, dtype=torch.float32)[:, None, None] for v in (self.mean, self.std))
        x = (planes.float() - mean) / std
        height, width = x.shape[2:]
        return F.pad(x, (0, -width % self.multiple, 0, -height % self.multiple))

    def resize(self, frames: Tensor) -> Tensor:
        """Resizes frames uint8 (T, H, W, 3): on a CPU to Pillow's very bytes, elsewhere to one level."""
        return resize(frames, *self.resizing.size(frames.shape[1], frames.shape[2]))


def to_bgr_planes(frames: Tensor) -> Tensor:
    """Turns frames (N, H, W, 3), RGB, into planes (N, 3, H, W), BGR."""
    return frames.permute(0, 3, 1, 2).flip(1)
