"""Runs networks: the interface of an engine, and torch's, eager or compiled, in the precision asked for.

extractors/engines/openvino.py is the other engine, extractors/engines/engine_choice.py takes one of them.
"""

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

import torch
from torch import Tensor, nn

from extractors.engines.batch_norm_folding import fold_norms

Precision = Literal["fp32", "bf16", "fp16"]
EngineName = Literal["auto", "openvino", "compile", "torch"]

HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Kernels read a picture's or a clip's channels from neighbouring addresses.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
#: Layers that multiply matrices, and whose weights may be kept in 16 bits.
MULTIPLIERS = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)


def default_cache() -> Path:
    """Returns the folder of converted networks: REELWORD_CACHE, or reelword in the user's cache folder."""
    users = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "reelword"
    return Path(os.environ.get("REELWORD_CACHE") or users).expanduser()


@dataclass(frozen=True)
class EngineOptions:
    """Options of an engine; each field has a default that works anywhere."""

    #: On which torch runs the network; "cpu" lets OpenVINO run where it is installed.
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    #: "auto" is OpenVINO on a CPU, the fastest that was measured there, and torch elsewhere.
    engine: EngineName = "auto"
    precision: Precision | None = None  #: None is the engine's fastest on this processor
    threads: int = 1  #: that OpenVINO shares rows out among
    cache: Path = field(default_factory=default_cache)  #: folder of converted models


@dataclass(frozen=True)
class UnbuiltModule:
    """Builds a network when it is asked for: where a converted one is kept, its weights are never read."""

    build: Callable[[], nn.Module]


def built(module: nn.Module | UnbuiltModule) -> nn.Module:
    """Returns the module, built now where it has not been."""
    return module.build() if isinstance(module, UnbuiltModule) else module


class NetworkEngine(ABC):
    """Runs a network: rows (N, …) in, of any rank; float32 rows (N, …) out, one tensor an output.

    What comes out lies on the engine's device; its input may lie anywhere.
    """

    name: str
    precision: Precision

    @abstractmethod
    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Returns all that the network does, in its order; one, where it returns a tensor."""

    def __call__(self, pixels: Tensor) -> Tensor:
        """Returns the first output."""
        return self.outputs(pixels)[0]


class TorchEngine(NetworkEngine):
    """Runs a copy of the module by torch, channels last.

    In half precision its weights are so too, and with an ``example`` of its input at hand batch norms are
    folded away. On a GPU, and where compiled, rows are filled up to a power of two, so that few shapes come.

    precision: None takes fp16 on a GPU, bf16 on a CPU with instructions for it, else fp32, which is IEEE's
    on a GPU too. compiled: by torch.compile, which takes a minute for each new shape and needs a C++
    compiler; on a GPU each shape is one CUDA graph.
    """

    def __init__(
        self,
        module: nn.Module,
        device: torch.device,
        precision: Precision | None = None,
        *,
        example: Tensor | None = None,
        compiled: bool = False,
    ) -> None:
        self.name = "compile" if compiled else "torch"
        self.device = device
        self.precision = precision or fastest_precision(device)
        self._half = HALVES.get(self.precision)
        network = copy.deepcopy(module).eval().requires_grad_(False).to(device)
        if self._half is not None and example is not None:
            fold_norms(network, example.to(device))
        lay_out(network, self._half)
        # freezing folds batch norms and lays weights out for the kernels that will read them
        forward = _compile(network, device) if compiled else network
        self._forward: Callable[[Tensor], tuple[Tensor, ...]] = lambda pixels: to_tuple(forward(pixels))
        self._evens = compiled or device.type == "cuda"
        self._graphed = compiled and device.type == "cuda"

    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        rows = fill_up(pixels) if self._evens else pixels
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, self._half, enabled=self._half is not None),
            torch.backends.cudnn.flags(
                enabled=True, benchmark=True, allow_tf32=self._half is not None, fp32_precision="none"
            ),
        ):
            values = self._forward(rows.to(self.device, non_blocking=True))
        # a copy where the next batch's graph would write over it
        return tuple(value[: len(pixels)].to(torch.float32, copy=self._graphed) for value in values)


def _compile(network: nn.Module, device: torch.device) -> nn.Module:
    options = {"freezing": True, "triton.cudagraphs": device.type == "cuda"}
    return cast(nn.Module, torch.compile(network, dynamic=False, options={**options}))


def lay_out(network: nn.Module, half: torch.dtype | None) -> None:
    """Lays weights out as the kernels want them, in place."""
    for layer in network.modules():
        for weight in layer.parameters(recurse=False):
            if half is not None and isinstance(layer, MULTIPLIERS):
                weight.data = weight.data.to(half)
            if weight.dim() in CHANNELS_LAST:
                weight.data = weight.data.contiguous(memory_format=CHANNELS_LAST[weight.dim()])


def to_tuple(values: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Turns a module's output into the form of ``NetworkEngine.outputs``."""
    return (values,) if isinstance(values, Tensor) else tuple(values)


def fill_up(rows: Tensor) -> Tensor:
    """Repeats the last row until there is a power of two of them."""
    missing = (1 << (len(rows) - 1).bit_length()) - len(rows)
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing else rows


def fastest_precision(device: torch.device) -> Precision:
    """Returns the precision in which torch multiplies fastest on the device, down to 16 bits."""
    if device.type != "cpu":
        return "fp16"
    capabilities = torch.cpu.get_capabilities()
    return "bf16" if capabilities.get("amx_bf16") or capabilities.get("avx512_bf16") else "fp32"
