"""Runs networks on a CPU by OpenVINO: converted from torch once, kept in a folder, compiled at each start."""

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.engines.engine import NetworkEngine, Precision, UnbuiltModule, built
from extractors.engines.kept_models import MODEL_FILE, KeptModel, digest_of_source, lock_model, note_use
from extractors.files import atomic_write

# Importing OpenVINO would report to its maker's statistics: without the reporter it takes a silent stand-in.
sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
import openvino  # noqa: E402

__all__ = ["openvino"]

HINTS = {"fp32": "f32", "bf16": "bf16", "fp16": "f16"}

log = logging.getLogger(__name__)


class OpenVinoEngine(NetworkEngine):
    """Runs a module compiled for this processor.

    Rows are shared out among threads, each of which goes through the whole network with its own: they wait
    for each other once a call. Threads that share a layer wait after each layer, which on cores that others
    use, too, takes longer than one thread alone.

    example: rows as the module takes them; free: its axes whose length may vary. folder: where the converted
    model is kept, found by ``key`` (network and weights), the input, versions and source;
    threads: that rows are shared out among. precision: None takes bf16 where this processor multiplies it in
    hardware, else fp32.
    """

    name = "openvino"

    def __init__(
        self,
        module: nn.Module | UnbuiltModule,
        example: Tensor,
        key: str,
        folder: Path,
        precision: Precision | None,
        threads: int,
        free: tuple[int, ...] = (0,),
    ) -> None:
        self.precision = precision or fastest_precision()
        hints = {
            "INFERENCE_PRECISION_HINT": HINTS[self.precision],
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": threads,
        }
        self._hints, self._threads = hints, threads
        self._find_model: Callable[[], openvino.Model] = partial(
            _find_model, module, example, key, folder, free
        )
        if isinstance(module, nn.Module):  # which its owner may change before the first rows come
            model = self._find_model()
            self._find_model = lambda: model

    @cached_property
    def _requests(self) -> list[openvino.InferRequest]:
        """Finds and compiles the model when the first rows come: of several networks most jobs need one."""
        compiled = openvino.Core().compile_model(self._find_model(), "CPU", self._hints)
        del self._find_model  # the network that it was made of is in memory no longer
        return [compiled.create_infer_request() for _ in range(self._threads)]

    def outputs(self, pixels: Tensor) -> tuple[Tensor, ...]:
        rows = pixels.cpu().contiguous().numpy()
        if len(rows) > 1 and len(self._requests) > 1:
            return self._share_out(rows)
        answer = self._requests[0].infer([rows], share_inputs=True)
        return tuple(torch.from_numpy(answer[index]) for index in range(len(answer)))

    def _share_out(self, rows: NDArray[Any]) -> tuple[Tensor, ...]:
        """Runs as many equal shares of the rows at the same time as there are threads."""
        shares = np.array_split(rows, min(len(rows), len(self._requests)))
        running = list(zip(self._requests, shares, strict=False))
        for request, share in running:
            request.start_async([share], share_inputs=True)
        failures = [failure for request, _ in running if (failure := _wait(request)) is not None]
        if failures:
            raise failures[0]
        parts = [[tensor.data for tensor in request.output_tensors] for request, _ in running]
        return tuple(torch.from_numpy(np.concatenate(outputs)) for outputs in zip(*parts, strict=True))


def _wait(request: openvino.InferRequest) -> Exception | None:
    """Waits for one share, and returns what went wrong: the others still read their rows."""
    try:
        request.wait()
    except Exception as error:  # whatever OpenVINO raises
        return error
    return None


def fastest_precision() -> Precision:
    """Returns bf16 where this processor has instructions for it, else fp32."""
    return "bf16" if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "fp32"


def _find_model(
    module: nn.Module | UnbuiltModule, example: Tensor, key: str, folder: Path, free: tuple[int, ...]
) -> openvino.Model:
    """Reads the converted model that is kept for the key; else builds the network and converts it.

    Of processes that want the same model at once one converts, and the others wait for it.
    """
    facts = _facts_of(example, key, free)
    note = folder / f"{hashlib.sha256(facts).hexdigest()[:16]}.json"
    with lock_model(note):
        model = _read_kept(note)
        return _convert_and_note(built(module), example, facts, note, free) if model is None else model


def _read_kept(note: Path) -> openvino.Model | None:
    """Reads the model that a note names; None where it is not there, out of date or damaged."""
    kept = KeptModel.read(note)
    if kept is None or not kept.is_current or not (note.parent / kept.folder).exists():
        return None
    try:
        model = openvino.Core().read_model(note.parent / kept.folder / MODEL_FILE)
    except RuntimeError:
        return None  # _load_or_convert says so and makes it anew
    note_use(note)
    return model


def _convert_and_note(
    network: nn.Module, example: Tensor, facts: bytes, note: Path, free: tuple[int, ...]
) -> openvino.Model:
    modules = {type(part).__module__ for part in network.modules()}
    sources = {name: digest_of_source(name) for name in sorted(modules) if name.split(".")[0] != "torch"}
    name = hashlib.sha256(facts + json.dumps(sources, sort_keys=True).encode()).hexdigest()[:16]
    model = _load_or_convert(network, example, note.parent / name, free)
    with suppress(OSError), atomic_write(note) as unfinished:  # where nothing can be kept, that has been said
        unfinished.write_text(KeptModel(folder=name, sources=sources).model_dump_json())
    return model


def _load_or_convert(
    module: nn.Module, example: Tensor, kept: Path, free: tuple[int, ...] = (0,)
) -> openvino.Model:
    """Loads the converted model, made and kept first where it is not there.

    module: in eval mode or not; it stays as it is. example: an input, its free axes longer than 1. Returns
    the model, not compiled yet.
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
    from torch.export import Dim  # brings half of torch's compiler, which a kept model does not need

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
        written = Path(scratch) / kept.name
        openvino.save_model(model, written / MODEL_FILE, compress_to_fp16=False)
        try:
            os.rename(written, kept)
        except OSError:
            if not kept.exists():  # else another process was the first, with the same model
                raise


def _facts_of(example: Tensor, key: str, free: tuple[int, ...]) -> bytes:
    """Writes down what a converted model depends on, without the network's sources: its weights (the key),
    the input, and the versions."""
    lengths = [None if axis in free else length for axis, length in enumerate(example.shape)]
    return "\n".join(
        map(str, (key, example.dtype, lengths, torch.__version__, openvino.__version__))
    ).encode()
