"""Checkpoints of flax: pickles of nested dictionaries, read without flax and without running their code."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core import multiarray  # where numpy 2 keeps what its pickles call numpy.core.multiarray
from torch import Tensor

from extractors.weights_errors import WeightsDamaged

#: All that such a pickle needs to call; flax's immutable dictionary becomes a plain one.
ADMITTED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy.core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): multiarray._reconstruct,
    ("flax.core.frozen_dict", "FrozenDict"): dict,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}")
        return ADMITTED[module, name]


def read(file: Path) -> dict[str, Tensor]:
    """Tensors by their path, such as ``params/Conv3d_1a_7x7/Conv_0/kernel``. Raises WeightsDamaged."""
    try:
        with file.open("rb") as stream:
            tree = _Unpickler(stream).load()
        return {path: torch.from_numpy(array) for path, array in _leaves(tree, "")}
    except (pickle.UnpicklingError, EOFError, AttributeError, TypeError) as error:
        raise WeightsDamaged(f"{file} is not a checkpoint of flax: {error}") from error


def _leaves(tree: Mapping[str, Any], above: str) -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}/")
        else:
            yield f"{above}{name}", value
