"""dualAFR's alignment: layers of a network brought to one grid, one clock and one width (eq. 3).

Layer l comes as (B, p_l·M, N_l, C_l) and leaves as (B, M, N, C), with M slots of p_l rows each. Beside the
paper's 3D convolution stand the four baselines of its table 1. Its text leaves these open, so:

* max and average pooling use the convolution's own pooling windows, and an MLP of one hidden layer;
* the hypercolumn is the mean over a slot's rows, resized bilinearly to the last layer's grid, and that MLP;
* "a different MLP a layer" of full size would have 8·10⁸ weights for pool2 alone; ours is factored: one
  linear over the places of a slot, shared by the channels, then the same MLP over the channels.
"""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from extractors.preprocessing.images import Edges, find_cell_edges, make_even_edges, pool_edges
from models.inputs import Batch, InputStream

Alignment = Literal["convolution", "max", "average", "hypercolumn", "mlp"]


class LayerConfig(InputStream):
    """Describes one layer, maps of side × side cells.

    kernel and pool are (time, space); pool is also the ratio to a_L.
    """

    side: int
    kernel: tuple[int, int] = (1, 1)
    pool: tuple[int, int] = (1, 1)

    @property
    def aligned_side(self) -> int:
        """Cells on a side after spatial pooling, padded by half its size as C3D's own pool5 (7 → 4) is."""
        return (self.side + 2 * (self.pool[1] // 2) - self.pool[1]) // self.pool[1] + 1


def find_aligned_edges(kind: Alignment, layer: LayerConfig) -> Edges:
    """Finds where the rows, and columns, of a layer's aligned map lie in the picture.

    Pooling joins cells, the outer ones with its padding, so that what it leaves is uneven. A hypercolumn is
    resized evenly, and the MLP over places has no places of its own.
    """
    if kind in ("hypercolumn", "mlp"):
        return make_even_edges(layer.aligned_side)
    return pool_edges(find_cell_edges(layer.name, layer.side), layer.pool[1], layer.pool[1] // 2)


def split_into_steps(batch: Batch, side: int) -> Batch:
    """Gives each step of a window a row of its own: (B, W, s·N, C) → (B, s·W, N, C), N = side².

    Where windows overlap (C3D's, by half) every second one is taken, so that the maps follow each other
    without a gap and no frame counts twice. Maps of single frames are left as they are.
    """
    steps = batch.values.shape[2] // side**2
    overlaps = batch.overlaps
    if overlaps is None:
        overlaps = bool(((batch.times[:, 1:, 0] < batch.times[:, :-1, 1]) & batch.frame_mask[:, 1:]).any())
    every = 2 if overlaps else 1
    if steps == every == 1:
        return batch
    videos, windows, _, width = batch.values[:, ::every].shape
    rows = (videos, windows * steps, side**2)
    begin, end = batch.times[:, ::every, :1], batch.times[:, ::every, 1:]
    edges = begin + (end - begin) * torch.arange(steps + 1, device=begin.device) / steps
    return Batch(
        times=torch.stack([edges[..., :-1], edges[..., 1:]], 3).flatten(1, 2),
        values=batch.values[:, ::every].reshape(*rows, width),
        frame_mask=batch.frame_mask[:, ::every].repeat_interleave(steps, 1),
        region_mask=batch.region_mask[:, ::every].reshape(rows),
    )


def build_alignment(kind: Alignment, layer: LayerConfig, channels: int) -> nn.Module:
    """Builds the module that aligns one layer. a_L itself, already ``channels`` wide, is left as it is.

    Args:
        kind: The paper's convolution, or one of the baselines of its table 1.
        layer: The layer's width, side, kernel and pooling.
        channels: Width C of all aligned layers.

    Returns:
        A module from (B, p·M, N_l, C_l) to (B, M, N, C).
    """
    if kind != "convolution":
        return PooledAlignment(kind, layer, channels)
    as_it_is = layer.kernel == (1, 1) and layer.pool == (1, 1) and layer.width == channels
    return nn.Identity() if as_it_is else ConvolutionAlignment(layer, channels)


class ConvolutionAlignment(nn.Module):
    """Computes â_l = f(Σ_k a_l(k) ∗ U_k,l), f = ReLU and max pooling (eq. 3)."""

    def __init__(self, layer: LayerConfig, channels: int) -> None:
        super().__init__()
        (time, space), self.layer = layer.kernel, layer
        padding = (time // 2, space // 2, space // 2)
        self.U = nn.Conv3d(layer.width, channels, (time, space, space), padding=padding)

    def forward(self, a: Tensor) -> Tensor:
        """Aligns a layer: (B, p·M, N_l, C_l) → (B, M, N, C)."""
        return _places(_pooled(self.layer, torch.relu(self.U(_maps(a, self.layer.side)))))


class PooledAlignment(nn.Module):
    """Aligns as the baselines do: places by pooling, resizing or a linear, channels by an MLP."""

    def __init__(self, kind: Alignment, layer: LayerConfig, channels: int) -> None:
        super().__init__()
        self.kind, self.layer = kind, layer
        if kind == "mlp":
            self.places = nn.Linear(layer.pool[0] * layer.side**2, layer.aligned_side**2)
        self.mlp = nn.Sequential(nn.Linear(layer.width, channels), nn.ReLU(), nn.Linear(channels, channels))

    def forward(self, a: Tensor) -> Tensor:
        """Aligns a layer: (B, p·M, N_l, C_l) → (B, M, N, C)."""
        aligned: Tensor = self.mlp(self._to_one_grid(a))
        return aligned

    def _to_one_grid(self, a: Tensor) -> Tensor:
        """Aligns (B, p·M, N_l, C_l) → (B, M, N, C_l)."""
        ratio, side = self.layer.pool[0], self.layer.aligned_side
        slots = a.reshape(a.shape[0], -1, ratio, *a.shape[2:])
        if self.kind == "mlp":
            mixed: Tensor = self.places(slots.flatten(2, 3).transpose(2, 3))
            return mixed.transpose(2, 3)
        if self.kind == "hypercolumn":
            maps = _maps(slots.mean(2), self.layer.side).transpose(1, 2).flatten(0, 1)
            resized = F.interpolate(maps, (side, side), mode="bilinear", align_corners=False)
            return _places(resized.view(a.shape[0], -1, *resized.shape[1:]).transpose(1, 2))
        return _places(_pooled(self.layer, _maps(a, self.layer.side), average=self.kind == "average"))


def _maps(a: Tensor, side: int) -> Tensor:
    """Reshapes (B, T, N, C) → (B, C, T, side, side)."""
    return a.reshape(*a.shape[:2], side, side, a.shape[3]).permute(0, 4, 1, 2, 3)


def _places(maps: Tensor) -> Tensor:
    """Reshapes (B, C, M, side, side) → (B, M, N, C)."""
    return maps.flatten(3).permute(0, 2, 3, 1)


def _pooled(layer: LayerConfig, maps: Tensor, average: bool = False) -> Tensor:
    time, space = layer.pool
    window, padding = (time, space, space), (0, space // 2, space // 2)
    if average:
        return F.avg_pool3d(maps, window, window, padding, count_include_pad=False)
    return F.max_pool3d(maps, window, window, padding)
