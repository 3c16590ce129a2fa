"""What runs a network: torch anywhere, or OpenVINO on a CPU, in the precision that was asked for.

On a CPU OpenVINO is the faster (benchmarks/extract.py prints by how much); where it is not installed, or the
device is a GPU, torch runs the same module.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from pathlib import Path
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

Precision = Literal["fp32", "bf16", "fp16"]
EngineName = Literal["auto", "openvino", "torch"]
HALVES = {"bf16": torch.bfloat16, "fp16": torch.float16}

log = logging.getLogger(__name__)


class Engine(Protocol):
    """A network ready to run: uint8 (N, side, side, 3) to float32, rows in the order given."""

    name: str
    precision: Precision

    def __call__(self, pixels: Tensor) -> Tensor: ...


class TorchEngine:
    """The module itself, channels last, under autocast where half precision is asked for."""

    name = "torch"

    def __init__(self, module: nn.Module, device: torch.device, precision: Precision = "fp32") -> None:
        self.module = module.to(device, memory_format=torch.channels_last).eval()
        self.device, self.precision = device, precision

    def __call__(self, pixels: Tensor) -> Tensor:
        half = HALVES.get(self.precision)
        with torch.inference_mode(), torch.autocast(self.device.type, half, enabled=half is not None):
            values: Tensor = self.module(pixels.to(self.device))
        return values.float()


class OpenVinoEngine:
    """The module converted once, kept in a file, and compiled for this processor."""

    name = "openvino"

    def __init__(self, path: Path, precision: Precision, threads: int) -> None:
        import openvino

        core = openvino.Core()
        self.precision = precision
        hints = {
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}[precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        self.request = core.compile_model(core.read_model(path), "CPU", hints).create_infer_request()

    def __call__(self, pixels: Tensor) -> Tensor:
        values = self.request.infer([pixels.numpy()], share_inputs=True)[0]
        return torch.from_numpy(values)


def converted(module: nn.Module, example: Tensor, folder: Path, key: str) -> Path:
    """The module as an OpenVINO model in ``folder``, converted first where that has not been done.

    key: names weights and network; the versions of torch and OpenVINO are added to it. The first
    dimension of ``example`` stays free. Two processes may race: each writes its own files and moves them
    in place, weights first.
    """
    import openvino

    versions = f"{key} {torch.__version__} {openvino.__version__}"
    path = folder / f"{hashlib.sha256(versions.encode()).hexdigest()[:16]}.xml"
    if path.exists():
        return path
    rows = torch.export.Dim("rows", min=1, max=4096)
    with torch.inference_mode():
        exported = torch.export.export(module.eval(), (example,), dynamic_shapes=({0: rows},))
    model = openvino.convert_model(exported)
    model.reshape([-1, *example.shape[1:]])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        own = Path(scratch) / path.name
        openvino.save_model(model, own, compress_to_fp16=False)
        os.replace(own.with_suffix(".bin"), path.with_suffix(".bin"))
        os.replace(own, path)
    return path


def cpu_precision() -> Precision:
    """bf16 where this processor multiplies it in hardware, else fp32."""
    import openvino

    return "bf16" if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "fp32"


def choose_engine(
    module: nn.Module,
    example: Tensor,
    key: str,
    device: torch.device,
    engine: EngineName,
    precision: Precision | None,
    threads: int,
    cache: Path,
) -> Engine:
    """The engine asked for, or the fastest there is: OpenVINO on a CPU, torch where it is not installed."""
    if engine == "openvino" or (engine == "auto" and device.type == "cpu"):
        try:
            return OpenVinoEngine(converted(module, example, cache, key), precision or cpu_precision(), threads)
        except ImportError as error:
            if engine == "openvino":
                raise
            log.warning("OpenVINO is not installed (%s): torch runs the network, more slowly", error)
    return TorchEngine(module, device, precision or "fp32")
