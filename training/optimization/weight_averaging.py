"""Averages weights while they are trained: the average is what is judged and saved (EMA)."""

from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

_Tensors: TypeAlias = tuple[Tensor, ...] | list[Tensor]


def average_weights(network: nn.Module, decay: float) -> AveragedModel:
    """Returns a copy of the network that ``update_parameters`` moves towards it.

    Update n (from 0) keeps min(decay, (1 + n) / (10 + n)) of the average, so that the first, untrained
    weights are forgotten sooner than by ``decay`` alone. A decay of 0 copies the weights.
    """
    average = AveragedModel(network, multi_avg_fn=_make_warm_average(decay))
    average.module.requires_grad_(False)
    return average


def _make_warm_average(decay: float) -> Callable[[_Tensors, _Tensors, Tensor | int], None]:
    @torch.no_grad()
    def update(averaged: _Tensors, current: _Tensors, count: Tensor | int) -> None:
        # by tensors throughout: a number would have to wait for all that the GPU has still to do
        share = 1 - torch.as_tensor((1 + count) / (10 + count)).clamp(max=decay)
        change = torch._foreach_sub(current, averaged)
        torch._foreach_mul_(change, share)
        torch._foreach_add_(averaged, change)

    return update
