"""Which of its memories a captioner learns to write from."""

from __future__ import annotations

from typing import Any

import torch

from models.captioner import Captioner, Memory
from models.refocus import Refocus, RefocusMemory


def memory_to_learn_from(
    captioner: Captioner[Any, Any], memory: Memory, generator: torch.Generator
) -> Memory:
    """The captioner's memory; for refocus each video's first or second encoding, with even odds.

    So one decoding teaches both captions (eqs. 17 and 18), where their sum takes two.
    """
    if isinstance(captioner, Refocus) and isinstance(memory, RefocusMemory):
        first = torch.rand(memory.size, generator=generator) < 0.5
        return memory.either_step(first.to(memory.o.device))
    return memory
