"""Given captions through a captioner, as its tests of equations and gradients need them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from models.captioner import Captioner
from models.memory import Memory, StepAttention
from tests.reference.layers import Array

Step = tuple[Tensor, StepAttention | None]


def forced(captioner: Captioner, memory: Memory, captions: Sequence[Sequence[int]]) -> list[Step]:
    """``captions``: what each step is given, a row a caption, the same for every video."""
    state, steps = captioner.start(memory, len(captions)), []
    for i in range(len(captions[0])):
        word = torch.tensor([caption[i] for caption in captions]).repeat(memory.size)
        log_probs, state, attention = captioner.step(state, word, memory)
        steps.append((log_probs, attention))
    return steps


def weights_of(captioner: Captioner) -> dict[str, Array]:
    return {name: value.double().numpy() for name, value in captioner.state_dict().items()}


def close(ours: Tensor, wanted: Array) -> None:
    np.testing.assert_allclose(ours.numpy(), wanted, atol=2e-5, rtol=2e-4)


def never_reached(module: nn.Module, loss: Callable[[int], Tensor], batches: int = 10) -> list[str]:
    """Parameters that want a gradient and get none above 1e-9 from ``loss(0)`` … ``loss(batches - 1)``."""
    trained: dict[str, Any] = {n: p for n, p in module.named_parameters() if p.requires_grad}
    largest = dict.fromkeys(trained, 0.0)
    for batch in range(batches):
        module.zero_grad()
        loss(batch).backward()
        for name, parameter in trained.items():
            if parameter.grad is not None:
                assert parameter.grad.isfinite().all(), name
                largest[name] = max(largest[name], float(parameter.grad.abs().max()))
    return [name for name, size in largest.items() if size < 1e-9]
