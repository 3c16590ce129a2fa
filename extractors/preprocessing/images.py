"""Resizes, crops and normalizes pictures for networks, and places the cells of their maps in the picture.

Nearly all networks pad so that their cells tile evenly what the network saw. Those that do not are listed
here, by the name of their stream, so that feature files of other programs are read rightly too.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from extractors.features import PILLOW, WHOLE, Filter, Resizing, View, scale_short_side

#: n + 1 rising numbers in [0, 1] where the n rows, or columns, of a map begin and end.
Edges: TypeAlias = tuple[float, ...]

#: C3D's last pooling pads its seven cells by one on either side: the first of four covers one, the rest two.
C3D_POOL5: Edges = (0.0, 1 / 7, 3 / 7, 5 / 7, 1.0)
#: Inception-V4 pads no convolution of a stride: its 8 cells are centred at 37, 69, … 261 of 299 pixels. An
#: edge lies half way between two centres, and the outermost cells see up to the rim.
INCEPTION_V4: Edges = (0.0, *((37.5 + 16 + 32 * cell) / 299 for cell in range(7)), 1.0)

UNEVEN: dict[str, Edges] = {"c3d_pool5": C3D_POOL5, "inception_v4_grid": INCEPTION_V4}
#: Of maps whose cells are of several steps of time, step by step: how many steps a row has.
STEPS: dict[str, int] = {"c3d_pool2": 8, "c3d_pool3": 4, "c3d_pool4": 2}


def to_device(pixels: NDArray[np.uint8], device: torch.device) -> Tensor:
    """Moves pictures as bytes to the device: a quarter of what floats would take on the way."""
    here = torch.from_numpy(np.require(pixels, requirements=["C", "W"]))
    return _copy_beside(here, device) if device.type == "cuda" else here.to(device)


def _copy_beside(here: Tensor, device: torch.device) -> Tensor:
    """Copies to a GPU while it computes what came before: from pinned memory, on a stream of its own."""
    copying, computing = _copy_stream(device), torch.cuda.current_stream(device)
    with torch.cuda.stream(copying):
        there = here.pin_memory().to(device, non_blocking=True)
    computing.wait_stream(copying)
    there.record_stream(computing)
    return there


@cache
def _copy_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def squash(pixels: Tensor, side: int) -> Tensor:
    """Squashes whole pictures, uint8 (N, H, W, 3), to squares, uint8 (N, side, side, 3).

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
    """Resizes whole pictures by their shorter side, the aspect ratio kept.

    Antialiased, rounded to 8 bits after each axis, the longer side cut to a whole number: on a CPU
    Pillow's very bytes, as the public extractors have them. Other devices agree to one level.

    Args:
        pixels: uint8 (N, H, W, 3).
        side: of the shorter side, in pixels.
        kernel: of the filter.

    Returns:
        uint8 (N, rows, columns, 3).
    """
    return resize(pixels, *scale_short_side(pixels.shape[1], pixels.shape[2], side), kernel)


def resize(pixels: Tensor, rows: int, columns: int, kernel: Filter = "bilinear") -> Tensor:
    """Resizes whole pictures, rounded as ``shrink_or_enlarge`` says.

    Args:
        pixels: uint8 (N, H, W, 3).
        rows, columns: of the result.
        kernel: of the filter.
    """
    if pixels.shape[1:3] == (rows, columns):
        return pixels
    return (_resize_with_pillow if pixels.device.type == "cpu" else resize_by_axes)(
        pixels, rows, columns, kernel
    )


def crop_middle(x: Tensor, side: int, axes: tuple[int, int] = (1, 2)) -> Tensor:
    """Cuts the middle out of two axes.

    Args:
        x: of any shape.
        side: length that is left; of an odd rest, the smaller part is before it.
        axes: which two.

    Returns:
        A view of ``x``.
    """
    for axis in axes:
        x = x.narrow(axis, (x.shape[axis] - side) // 2, side)
    return x


def _resize_with_pillow(pixels: Tensor, rows: int, columns: int, kernel: Filter) -> Tensor:
    pictures = (Image.fromarray(picture) for picture in pixels.contiguous().numpy())
    resized = [picture.resize((columns, rows), PILLOW[kernel]) for picture in pictures]
    return torch.from_numpy(np.stack([np.asarray(picture) for picture in resized]))


def resize_by_axes(pixels: Tensor, rows: int, columns: int, kernel: Filter = "bilinear") -> Tensor:
    """Resizes as Pillow does, on any device: first the columns, then the rows, each rounded to 8 bits.

    Args:
        pixels, rows, columns, kernel: as of ``resize``.
    """
    planes = pixels.permute(0, 3, 1, 2).float()
    for size in ((pixels.shape[1], columns), (rows, columns)):
        planes = F.interpolate(planes, size, mode=kernel, antialias=True).add(0.5).floor().clamp(0, 255)
    return planes.byte().permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True)
class ResizeAndCrop:
    """Resizes pictures, then cuts out the middle square of ``crop`` pixels (None: all of it).

    Calling it does so, and its string describes it in a stream's name tag.
    """

    #: of the shorter side, the aspect ratio kept; or (rows, columns), into which the whole is squashed
    size: int | tuple[int, int]
    crop: int | None
    filter: Filter = "bilinear"  #: of the resizing
    #: where the square begins when the rest is odd: "down" takes the smaller part before it, as numpy code
    #: does with //; "even" rounds the half to even, as torchvision does
    rounding: str = "down"

    def __post_init__(self) -> None:
        if self.rounding not in ("down", "even"):
            raise ValueError(f"rounding is 'down' or 'even', not {self.rounding!r}")

    @property
    def resizing(self) -> Resizing:
        """The resizing of whole pictures, before anything is cut out."""
        return Resizing(self.size, filter=self.filter)

    def __call__(self, frames: Tensor) -> Tensor:
        """Prepares frames uint8 (T, H, W, 3) to (T, h, w, 3); on a CPU Pillow's very bytes."""
        frames = resize(frames, *self.resizing.size(frames.shape[1], frames.shape[2]), self.filter)
        if self.crop is None:
            return frames
        for axis in (1, 2):
            frames = frames.narrow(axis, self._find_begin(frames.shape[axis] - self.crop), self.crop)
        return frames

    def view(self, height: int, width: int) -> View:
        """Returns the part that is left of frames of that size."""
        if self.crop is None:
            return WHOLE
        rows, columns = self.resizing.size(height, width)
        top, left = self._find_begin(rows - self.crop), self._find_begin(columns - self.crop)
        return left / columns, top / rows, (left + self.crop) / columns, (top + self.crop) / rows

    def _find_begin(self, rest: int) -> int:
        return rest // 2 if self.rounding == "down" else round(rest / 2)

    def __str__(self) -> str:
        if isinstance(self.size, int):
            size = f"short side {self.size}"
        else:
            size = f"squashed to {self.size[1]}x{self.size[0]}"
        text = f"{size}, antialiased {self.filter}, 8 bits"
        if self.crop is None:
            return text
        rest = "" if self.rounding == "down" else ", half of an odd rest rounded to even"
        return f"{text}; middle {self.crop}x{self.crop}{rest}"


def make_even_edges(cells: int) -> Edges:
    """Makes the edges of ``cells`` of one size."""
    return tuple(place / cells for place in range(cells + 1))


def find_cell_edges(stream: str, cells: int) -> Edges:
    """Finds the edges of the rows, and columns, of ``stream``, a square map of ``cells`` each way."""
    edges = UNEVEN.get(stream)
    return edges if edges is not None and len(edges) == cells + 1 else make_even_edges(cells)


def pool_edges(edges: Edges, pool: int, padding: int) -> Edges:
    """Merges cells as a pooling layer does.

    Args:
        edges: before.
        pool: cells that become one.
        padding: cells of nothing that are put before and after. Windows that reach into it cover only the
            cells that there are.

    Returns:
        The edges after. Cells after the last whole window are not seen and lie outside them.
    """
    side = len(edges) - 1
    windows = (side + 2 * padding - pool) // pool + 1
    return tuple(edges[min(max(place * pool - padding, 0), side)] for place in range(windows + 1))


def map_to_picture(edges: Edges, begin: float, end: float) -> Edges:
    """Maps edges from a view to the picture that it was cut out of.

    Args:
        edges: in [0, 1] of the view; the result's are of the whole picture.
        begin, end: of the view, in [0, 1] of the whole picture.
    """
    return tuple(begin + (end - begin) * edge for edge in edges)
