"""Chooses the device and the engine that run a network.

On a CPU OpenVINO is several times faster (docs/results/extractors.md has a table of each network's gain);
where it is not installed, or the device is a GPU, torch runs the same module.
"""

import logging
from typing import get_args

import torch
from torch import Tensor, nn

from extractors.engines.engine import (
    EngineName,
    EngineOptions,
    NetworkEngine,
    TorchEngine,
    UnbuiltModule,
    built,
)
from extractors.errors import ReelwordError

log = logging.getLogger(__name__)


def choose_device(wanted: str) -> str:
    """Returns ``wanted``, but for "auto" a GPU where there is one, else the CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


class DeviceUnavailable(ReelwordError, ValueError, code="device_unavailable"):
    """The device that was asked for is not there; the message says what is."""

    hint = "Choose cpu, or auto, which takes a GPU where there is one."


def open_device(wanted: str) -> torch.device:
    """Returns the device of that name once it is sure that torch can compute on it.

    wanted: "auto", "cpu", "cuda" or "cuda:N". Raises DeviceUnavailable.
    """
    try:
        device = torch.device(choose_device(wanted))
    except RuntimeError:
        device = torch.device("meta")
    if device.type not in ("cpu", "cuda"):
        raise DeviceUnavailable(f"There is no device {wanted!r}: devices are auto, cpu, cuda and cuda:N.")
    count = torch.cuda.device_count() if device.type == "cuda" else 1
    if not count:
        raise DeviceUnavailable(f"{wanted} asks for a GPU, and torch finds none on this machine.")
    if (device.index or 0) >= count:
        raise DeviceUnavailable(f"There is no {wanted}: the last GPU of this machine is cuda:{count - 1}.")
    return device


def choose_engine(
    module: nn.Module | UnbuiltModule,
    example: Tensor,
    key: str,
    options: EngineOptions,
    free: tuple[int, ...] = (0,),
) -> NetworkEngine:
    """Makes the engine asked for.

    Args:
        module: returns a tensor or a tuple of tensors; it is copied, and stays as it is. An
            UnbuiltModule is built where no converted model is kept.
        example: an input, its free axes longer than 1.
        key: names the network and its weights; a converted model is kept for it.
        options: which engine, and how it runs.
        free: axes whose length may differ from call to call, such as (0, 1, 2) of pictures of any number and
            size.

    Raises:
        ImportError: OpenVINO is asked for by name and absent.
        ValueError: it is asked for on another device than a CPU, or there is no engine of that name.
    """
    engine, device, precision = options.engine, options.device, options.precision
    if engine not in get_args(EngineName):
        raise ValueError(f"there is no engine {engine!r}; there are: {', '.join(get_args(EngineName))}")
    if engine == "openvino" and device.type != "cpu":
        raise ValueError(f"the OpenVINO engine runs on a CPU, not on {device}: choose torch")
    if engine in ("torch", "compile") or device.type != "cpu":
        return TorchEngine(built(module), device, precision, example=example, compiled=engine == "compile")
    try:
        from extractors.engines.openvino import OpenVinoEngine
    except ImportError as error:
        if engine == "openvino":
            raise
        log.warning("torch runs the network, more slowly, because OpenVINO cannot be imported: %s", error)
        return TorchEngine(built(module), device, precision, example=example)
    return OpenVinoEngine(module, example, key, options.cache, precision, options.threads, free)
