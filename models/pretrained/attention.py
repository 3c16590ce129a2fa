"""Records what written tokens attend to while a model reads finished captions once more."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class AttentionChoice:
    """Chooses which of a decoder's attention is shown."""

    #: places of the layers whose mean is shown; None takes the upper half of them, where words have found
    #: their objects and the embeddings' own likeness weighs less
    layers: tuple[int, ...] | None = None
    heads: tuple[int, ...] | None = None  #: None for the mean of all
    #: for self-attention, weights multiplied through all layers, half of each being what a token keeps of
    #: itself (Abnar and Zuidema 2020), instead of the mean; ``layers`` are then left aside
    rollout: bool = False

    def of(self, modules: Sequence[nn.Module]) -> list[nn.Module]:
        """Returns the modules that are recorded. Raises ValueError where a layer is not there."""
        if self.rollout:
            return list(modules)
        if self.layers is None:
            return list(modules[len(modules) // 2 :])
        if not self.layers or not all(0 <= layer < len(modules) for layer in self.layers):
            raise ValueError(f"layers must be some of 0 to {len(modules) - 1}; they are {self.layers}")
        return [modules[layer] for layer in self.layers]


class AttentionRecorder:
    """Sums the attention of chosen layers as it passes, so that no layer's is kept.

    Used as a context manager around one forward pass of a model with eager attention, whose attention
    modules return (output, weights (R, heads, queries, keys)).
    """

    def __init__(self, modules: Sequence[nn.Module], choice: AttentionChoice, tokens: int) -> None:
        """Prepares recording.

        modules: the decoder's attention modules, the lowest first. tokens: of the caption, written by the
        last queries; all others are left out.
        """
        self._modules, self._choice, self._queries = choice.of(modules), choice, slice(-tokens, None)
        self._total: Tensor | None = None
        self._hooks = ExitStack()

    def __enter__(self) -> Self:
        for module in self._modules:
            self._hooks.callback(module.register_forward_hook(self._record).remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def weights(self) -> Tensor:
        """Returns (R, queries, keys), float32: each query's mean over layers and heads, or the rollout."""
        if self._total is None:
            raise RuntimeError("no attention passed: was the model loaded with eager attention?")
        if self._choice.rollout:
            return self._total[:, self._queries]
        return self._total / len(self._modules)

    def _record(self, module: nn.Module, given: tuple[Any, ...], output: tuple[Any, ...]) -> None:  # noqa: ARG002
        heads: Tensor = output[1].detach()
        if self._choice.heads is not None:
            heads = heads[:, list(self._choice.heads)]
        if self._choice.rollout:
            self._total = self._rolled(heads.mean(1).float())
        else:
            mean = heads[:, :, self._queries].mean(1, dtype=torch.float32)
            self._total = mean if self._total is None else self._total + mean

    def _rolled(self, weights: Tensor) -> Tensor:
        """Returns one layer more: what a token has of the keys by way of those that it attends to."""
        if weights.shape[1] != weights.shape[2]:
            raise ValueError("rollout is for self-attention")
        through = (weights + torch.eye(weights.shape[1], device=weights.device)) / 2
        return through if self._total is None else through @ self._total
