"""Runs networks on a CPU by OpenVINO: converted from torch once, kept in a folder, compiled at each start."""

from __future__ import annotations

import hashlib
import inspect
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import Dim

from extractors.engines.engine import NetworkEngine, Precision

# Importing OpenVINO would report to its maker's statistics: without the reporter it takes a silent stand-in.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
import openvino  # noqa: E402

__all__ = ["openvino"]

MODEL_FILE = "model.xml"
HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}

log = logging.getLogger(__name__)


class OpenVinoEngine(NetworkEngine):
    """Runs a module compiled for this processor.

    example: rows as the module takes them; free: its axes whose length may vary. folder: where the converted
    model is kept, under a name made of ``key`` (network and weights), the input, versions and source;
    threads: of inference. precision: None takes bf16 where this processor multiplies it in hardware, else
    fp32.
    """

    name = "openvino"

    def __init__(
        self,
        module: nn.Module,
        example: Tensor,
        key: str,
        folder: Path,
        precision: Precision | None,
        threads: int,
        free: tuple[int, ...] = (0,),
    ) -> None:
        self.precision = precision or fastest_precision()
        model = load_or_convert(module, example, folder / _model_name(module, example, key, free), free)
        hints = {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
        }
        self._request = openvino.Core().compile_model(model, "CPU", hints).create_infer_request()

    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        rows = pixels.cpu().contiguous().numpy()
        answer = self._request.infer([rows], share_inputs=True)
        return tuple(torch.from_numpy(answer[index]) for index in range(len(answer)))


def fastest_precision() -> Precision:
    """Returns bf16 where this processor has instructions for it, else fp32."""
    return "bf16" if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "fp32"


def load_or_convert(
    module: nn.Module, example: Tensor, kept: Path, free: tuple[int, ...] = (0,)
) -> openvino.Model:
    """Loads the converted model, made and kept first where it is not there.

    Args:
        module: in eval mode or not; it stays as it is.
        example: an input, its free axes longer than 1.
        kept: folder of the model.
        free: axes whose length may differ from call to call.

    Returns:
        The model, not compiled yet.
    """
    if kept.exists():
        try:
            return openvino.Core().read_model(kept / MODEL_FILE)
        except RuntimeError as error:
            log.warning("the converted model in %s is damaged (%s): converting again", kept, error)
            shutil.rmtree(kept, ignore_errors=True)
    model = _convert(module, example, free)
    try:
        _save(model, kept)
    except OSError as error:
        log.warning("the converted model cannot be kept in %s (%s): each start converts again", kept, error)
    return model


def _convert(module: nn.Module, example: Tensor, free: tuple[int, ...]) -> openvino.Model:
    axes = {axis: Dim("rows", min=1, max=4096) if axis == 0 else Dim.DYNAMIC for axis in free}
    with torch.no_grad():
        exported = torch.export.export(module.eval(), (example,), dynamic_shapes=(axes,))
    model = openvino.convert_model(exported)
    model.reshape([-1 if axis in free else length for axis, length in enumerate(example.shape)])
    return model


def _save(model: openvino.Model, kept: Path) -> None:
    """Saves both files at once: they are written beside and their folder is moved into place."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        own = Path(scratch) / kept.name
        openvino.save_model(model, own / MODEL_FILE, compress_to_fp16=False)
        try:
            os.rename(own, kept)
        except OSError:
            if not kept.exists():  # else another process was the first, with the same model
                raise


def _model_name(module: nn.Module, example: Tensor, key: str, free: tuple[int, ...]) -> str:
    """Makes sixteen digits that change with the weights, the input, the versions and the source."""
    lengths = [None if axis in free else length for axis, length in enumerate(example.shape)]
    parts = (key, example.dtype, lengths, torch.__version__, openvino.__version__)
    digest = hashlib.sha256("\n".join(map(str, parts)).encode())
    modules = {type(part).__module__: type(part) for part in module.modules()}
    for name in sorted(modules):
        if name.split(".")[0] != "torch":
            digest.update(Path(inspect.getfile(modules[name])).read_bytes())
    return digest.hexdigest()[:16]
