"""Chooses the device and the engine that run a network.

On a CPU OpenVINO is several times faster (`python -m benchmarks.extract` says by how much on your machine);
where it is not installed, or the device is a GPU, torch runs the same module.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor, nn

from extractors.engines.engine import EngineName, NetworkEngine, Precision, TorchEngine

log = logging.getLogger(__name__)


def choose_device(wanted: str) -> str:
    """``wanted`` itself, but for "auto": a GPU where there is one, else the CPU."""
    if wanted != "auto":
        return wanted
    return "cuda" if torch.cuda.is_available() else "cpu"


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
    """Makes the engine asked for.

    For "auto" it is OpenVINO on a CPU, for all kinds of networks the fastest that was measured there, and
    torch elsewhere or where OpenVINO is not installed.

    Args:
        module: returns a tensor or a tuple of tensors; it is copied, and stays as it is.
        example: an input, its free axes longer than 1.
        key: names the network and its weights; a converted model is kept for it.
        device: where torch runs it.
        engine: which one.
        precision: None takes the engine's fastest on this processor.
        threads: of inference, for OpenVINO.
        cache: folder of converted models.
        free: axes whose length may differ from call to call, such as (0, 1, 2) of pictures of any number and
            size.

    Raises:
        ImportError: OpenVINO is asked for by name and absent.
        ValueError: it is asked for on another device than a CPU, or there is no engine of that name.
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
