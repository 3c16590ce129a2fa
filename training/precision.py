"""In which numbers training computes: half precision where the processor has it."""

from __future__ import annotations

import torch


def training_precision() -> torch.dtype:
    """bfloat16 where this processor multiplies it, else float32."""
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def autocast(precision: torch.dtype) -> torch.autocast:
    """Computes in ``precision``; in float32 nothing is cast."""
    return torch.autocast("cpu", precision, enabled=precision != torch.float32)
