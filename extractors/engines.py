"""What runs a network: torch anywhere, or OpenVINO on a CPU, in the precision that was asked for.

On a CPU OpenVINO is several times faster (`python -m benchmarks.extract` says by how much on your machine);
where it is not installed, or the device is a GPU, torch runs the same module.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "fp16"]
EngineName = Literal["auto", "openvino", "torch"]
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}

log = logging.getLogger(__name__)


class Engine(Protocol):
    """A network ready to run: uint8 rows (N, …) in, float32 rows (N, …) out."""

    @property
    def name(self) -> str: ...

    @property
    def precision(self) -> Precision: ...

    def __call__(self, pixels: Tensor) -> Tensor: ...


class TorchEngine:
    """The module itself, channels last, under autocast where half precision is asked for.

    precision: None takes fp16 on a GPU, bf16 on a CPU with instructions for it, else fp32.
    """

    name = "torch"

    def __init__(self, module: nn.Module, device: torch.device, precision: Precision | None = None) -> None:
        self.device = device
        self.precision: Precision = precision or fastest_precision(device)
        self._module = module.eval().to(device)
        self._module.to(memory_format=torch.channels_last)

    def __call__(self, pixels: Tensor) -> Tensor:
        half = HALVES.get(self.precision)
        with torch.inference_mode(), torch.autocast(self.device.type, half, enabled=half is not None):
            values: Tensor = self._module(pixels.to(self.device))
        return values.float()


def fastest_precision(device: torch.device) -> Precision:
    """What torch multiplies fastest on the device, down to 16 bits."""
    if device.type != "cpu":
        return "fp16"
    known = torch.cpu.get_capabilities()
    return "bf16" if known.get("amx_bf16") or known.get("avx512_bf16") else "fp32"


def choose_engine(
    module: nn.Module,
    example: Tensor,
    key: str,
    *,
    device: torch.device,
    engine: EngineName,
    precision: Precision | None,
    threads: int,
    cache: Path,
) -> Engine:
    """The engine asked for; for "auto" OpenVINO on a CPU, and torch elsewhere or where it is not installed.

    Raises ImportError where OpenVINO is asked for by name and absent, ValueError where it is asked for on
    another device than a CPU.
    """
    if engine == "openvino" and device.type != "cpu":
        raise ValueError(f"the OpenVINO engine runs on a CPU, not on {device}: choose torch")
    if engine == "torch" or device.type != "cpu":
        return TorchEngine(module, device, precision)
    try:
        from extractors.openvino_engine import OpenVinoEngine
    except ImportError as error:
        if engine == "openvino":
            raise
        log.warning("torch runs the network, more slowly, because OpenVINO cannot be imported: %s", error)
        return TorchEngine(module, device, precision)
    return OpenVinoEngine(module, example, key, cache, precision, threads)
