"""Decides in which precision a training computes.

Matrix products are computed in the precision chosen here, weights and optimiser stay in float32
(``torch.autocast``). float16 alone has too small a range for gradients: their losses are scaled.
"""

import torch
from torch.amp import GradScaler

from extractors.engines.engine import HALVES
from training.recipes.train_options import PrecisionName

CPU = torch.device("cpu")


def set_precision(name: PrecisionName, device: torch.device = CPU) -> torch.dtype:
    """Sets how a GPU multiplies what autocast leaves in float32: in TF32, unless ``name`` is "fp32".

    Returns:
        What autocast computes in; with "auto" what suits the device.
    """
    inner = "ieee" if name == "fp32" else "tf32"
    torch.backends.cuda.matmul.fp32_precision = inner
    torch.backends.cudnn.fp32_precision = inner
    return training_precision(device) if name == "auto" else HALVES.get(name, torch.float32)


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
