"""Reads checkpoints of every format, without running code from them.

The content tells the kind: torch's zip and its older pickle (``weights_only``), safetensors, a network of
TensorFlow Lite, or a pickle of numpy arrays (flax, detectron2, Caffe2). What wraps the parameters is taken
off, and names of nested dictionaries are joined by a slash.
"""

import _codecs
import pickle
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.serialization import safe_globals

from extractors.pretrained.errors import NoRoom, WeightsDamaged
from extractors.pretrained.weights_folder import write_weights


def _encode_bytes(text: str, encoding: str) -> bytes:
    """Encodes text again, by which Python 3 writes bytes for Python 2 to read."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it wants to encode text as {encoding}")
    return _codecs.encode(text, encoding)


#: All that pickles of flax, detectron2 and Caffe2 need to call: numbers and arrays of numpy in dictionaries,
#: lists and tuples. Flax's immutable dictionary becomes a plain one.
ADMITTED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    **{
        (module, name): getattr(multiarray, name)
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("_reconstruct", "scalar")
    },
    ("_codecs", "encode"): _encode_bytes,
    ("collections", "OrderedDict"): OrderedDict,
    ("flax.core.frozen_dict", "FrozenDict"): dict,
}


class _Unpickler(pickle.Unpickler):
    """Lets a pickle, which is a program, call nothing but what rebuilds an array."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}")
        return ADMITTED[module, name]


def read_pickle(file: Path) -> object:
    """Reads a pickle of arrays; text of Python 2 is taken as latin1. Raises WeightsDamaged."""
    try:
        with file.open("rb") as stream:
            return _Unpickler(stream, encoding="latin1").load()
    except Exception as error:  # a damaged byte may be anything's length, index or name
        raise WeightsDamaged(f"{file} cannot be read as arrays alone: {error}.") from error


#: Under which name training scripts keep the parameters, beside epochs and optimizers: of most; of
#: pytorchvideo; of detectron2; of Caffe2.
WRAPPERS = ("state_dict", "model_state", "model", "blobs")
ZIP = b"PK\x03\x04"
#: How torch's older files begin: protocol 2 and the number 0x1950a86a20f9469cfc6c.
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
#: Stands in every network of TensorFlow Lite, after four bytes.
TFLITE = b"TFL3"
#: Best values and learning rates stand beside the parameters as numpy's numbers.
NUMBERS: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (multiarray.scalar, "numpy.core.multiarray.scalar"),
    multiarray.scalar,
    np.dtype,
    *(type(np.dtype(kind)) for kind in ("float32", "float64", "int64")),
]


def read_checkpoint(file: Path, kept: Path | None = None) -> dict[str, Tensor]:
    """Reads tensors by name, on the CPU. Raises WeightsDamaged.

    kept: where a pickle of arrays is kept as safetensors, to be read from there the next time.
    """
    with file.open("rb") as stream:
        start = stream.read(32)
    if start.startswith((ZIP, OLD_TORCH)):
        return _collect_tensors(_read_torch(file), file)
    if start[8:9] == b"{":
        return _read_safetensors(file)
    if start[4:8] == TFLITE:
        from extractors.pretrained import tensorflow  # imports OpenVINO, which no other kind needs

        return tensorflow.read_layers(file)
    if kept is not None and kept.is_file():
        try:
            return _read_safetensors(kept)
        except WeightsDamaged:
            kept.unlink(missing_ok=True)
    tensors = _collect_tensors(read_pickle(file), file)
    if kept is not None:
        _write_safetensors(tensors, kept)
    return tensors


def _read_torch(file: Path) -> object:
    try:
        with safe_globals(NUMBERS):
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        reason = "code would have to be run for it" if "weights_only" in str(error) else str(error)
        raise WeightsDamaged(f"{file} cannot be read as tensors alone: {reason}.") from error
    except Exception as error:  # a damaged byte may be anything's length, index or name
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise WeightsDamaged(f"{file} is a damaged file of torch: {reason}.") from error


def _read_safetensors(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(file, framework="pt") as opened:
            return {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a mapping
    except SafetensorError as error:
        raise WeightsDamaged(f"{file} is a damaged file of safetensors: {error}.") from error


def _write_safetensors(tensors: Mapping[str, Tensor], kept: Path) -> None:
    """Writes safetensors; with a full disk nothing is kept, and the pickle is read again the next time."""
    with suppress(NoRoom), write_weights(kept) as unfinished:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, unfinished)


def _collect_tensors(content: object, file: Path) -> dict[str, Tensor]:
    """Collects the parameters in what was read: nothing but tensors and arrays of numbers."""
    tensors = dict(_iterate_leaves(_unwrap(content), ""))
    if not tensors:
        raise WeightsDamaged(f"{file} holds no parameters.")
    return tensors


def _unwrap(content: object) -> object:
    if isinstance(content, Mapping):
        for name in WRAPPERS:
            if isinstance(content.get(name), Mapping):
                return _unwrap(content[name])
    return content


def _iterate_leaves(tree: object, path: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _iterate_leaves(value, f"{path}/{name}" if path else str(name))
    elif isinstance(tree, Tensor):
        yield path, tree.detach()
    elif isinstance(tree, np.ndarray | np.number) and np.issubdtype(tree.dtype, np.number):
        # arrays of a pickle may be read-only or of the other byte order
        yield path, torch.from_numpy(np.array(tree, tree.dtype.newbyteorder("="), copy=True, ndmin=0))
