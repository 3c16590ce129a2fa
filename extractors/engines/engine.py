"""What runs a network: torch anywhere, compiled or not, or OpenVINO on a CPU, in the precision asked for.

On a CPU OpenVINO is several times faster (`python -m benchmarks.extract` says by how much on your machine);
where it is not installed, or the device is a GPU, torch runs the same module.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from extractors.engines.base import EngineName, NetworkEngine, Precision
from extractors.engines.batch_norm_folding import fold_norms

# Where networks run.


def chosen_device(wanted: str) -> str:
    """``wanted`` itself, but for "auto": a GPU where there is one, else the CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}
#: Kernels read a picture's or a clip's channels from neighbouring addresses.
CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
#: Layers that multiply matrices, and whose weights may be kept in 16 bits.
MULTIPLIERS = (nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.ConvTranspose3d, nn.Linear)

log = logging.getLogger(__name__)


class TorchEngine(NetworkEngine):
    """A copy of the module, channels last; in half precision its weights are, and with an ``example`` of its
    input at hand batch norms are folded away.

    precision: None takes fp16 on a GPU, bf16 on a CPU with instructions for it, else fp32, which is IEEE's
    on a GPU too. compiled: by torch.compile, which takes a minute for each new shape and needs a C++
    compiler. On a GPU, and where compiled, rows are filled up to a power of two, so that few shapes come.
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
        forward = torch.compile(network, dynamic=False, options={"freezing": True}) if compiled else network
        self._forward: Callable[[Tensor], tuple[Tensor, ...]] = lambda pixels: as_tuple(forward(pixels))
        self._evens = compiled or device.type == "cuda"

    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        rows = filled_up(pixels) if self._evens else pixels
        with (
            torch.inference_mode(),
            torch.autocast(self.device.type, self._half, enabled=self._half is not None),
            torch.backends.cudnn.flags(
                enabled=True, benchmark=True, allow_tf32=self._half is not None, fp32_precision="none"
            ),
        ):
            values = self._forward(rows.to(self.device, non_blocking=True))
        return tuple(value[: len(pixels)].float() for value in values)


def lay_out(network: nn.Module, half: torch.dtype | None) -> None:
    """Weights as the kernels want them, in place."""
    for layer in network.modules():
        for weight in layer.parameters(recurse=False):
            if half is not None and isinstance(layer, MULTIPLIERS):
                weight.data = weight.data.to(half)
            if weight.dim() in CHANNELS_LAST:
                weight.data = weight.data.contiguous(memory_format=CHANNELS_LAST[weight.dim()])


def as_tuple(values: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]:
    """What a module returned, as ``NetworkEngine.outputs`` has it."""
    return (values,) if isinstance(values, Tensor) else tuple(values)


def filled_up(rows: Tensor) -> Tensor:
    """Rows repeated from the last one until there is a power of two of them."""
    missing = (1 << (len(rows) - 1).bit_length()) - len(rows)
    return torch.cat([rows, rows[-1:].expand(missing, *rows.shape[1:])]) if missing else rows


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
    free: tuple[int, ...] = (0,),
) -> NetworkEngine:
    """The engine asked for; for "auto" OpenVINO on a CPU, for all kinds of networks the fastest that was
    measured there, and torch elsewhere or where OpenVINO is not installed.

    module: returns a tensor or a tuple of tensors; it is copied, and stays as it is. example: an input, its
    free axes longer than 1. free: axes whose length may differ from call to call, such as (0, 1, 2) of
    pictures of any number and size. key: names the network and its weights; a converted model is kept for it.

    Raises ImportError where OpenVINO is asked for by name and absent, ValueError where it is asked for on
    another device than a CPU, or there is no engine of that name.
    """
    if engine not in get_args(EngineName):
        raise ValueError(f"there is no engine {engine!r}; there are: {', '.join(get_args(EngineName))}")
    if engine == "openvino" and device.type != "cpu":
        raise ValueError(f"the OpenVINO engine runs on a CPU, not on {device}: choose torch")
    if engine in ("torch", "compile") or device.type != "cpu":
        return TorchEngine(module, device, precision, example=example, compiled=engine == "compile")
    try:
        from extractors.engines.openvino import OpenVinoEngine
    except ImportError as error:
        if engine == "openvino":
            raise
        log.warning("torch runs the network, more slowly, because OpenVINO cannot be imported: %s", error)
        return TorchEngine(module, device, precision, example=example)
    return OpenVinoEngine(module, example, key, cache, precision, threads, free)
