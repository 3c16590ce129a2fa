"""Decides in which precision a training computes.

Matrix products are computed in the precision chosen here, weights and optimiser stay in float32
(``torch.autocast``). float16 alone has too small a range for gradients: their losses are scaled.
"""

from __future__ import annotations

import torch
from torch.amp import GradScaler

CPU = torch.device("cpu")


def training_precision(device: torch.device = CPU) -> torch.dtype:
    """Returns bfloat16 where the device multiplies it; else float16 on a GPU and float32 on a CPU."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def autocast(precision: torch.dtype, device: torch.device = CPU) -> torch.autocast:
    """Returns a context that computes in ``precision`` on that device; in float32 nothing is cast."""
    return torch.autocast(device.type, precision, enabled=precision != torch.float32)


def make_scaler(precision: torch.dtype, device: torch.device = CPU) -> GradScaler:
    """Returns what scales losses in float16; it does nothing in other precisions."""
    return GradScaler(device.type, enabled=precision == torch.float16)
