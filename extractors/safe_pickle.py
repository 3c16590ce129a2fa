"""Pickles read without running their code: numbers and arrays of numpy in dictionaries, lists and tuples.

Checkpoints of flax (nested dictionaries), of detectron2 and of Caffe2 (arrays by name) are of that kind. A
pickle is a program; this reader lets it call nothing but what rebuilds an array.
"""

from __future__ import annotations

import _codecs
import pickle
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core import multiarray  # where numpy 2 keeps what its pickles call numpy.core.multiarray

from extractors.weights_errors import WeightsDamaged


def _bytes(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes for Python 2 to read: as text to be encoded again."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it wants to encode text as {encoding}")
    return _codecs.encode(text, encoding)


#: All that such a pickle needs to call; flax's immutable dictionary becomes a plain one.
ADMITTED: Mapping[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): np.dtype,
    ("numpy", "ndarray"): np.ndarray,
    **{
        (module, name): getattr(multiarray, name)
        for module in ("numpy.core.multiarray", "numpy._core.multiarray")
        for name in ("_reconstruct", "scalar")
    },
    ("_codecs", "encode"): _bytes,
    ("collections", "OrderedDict"): OrderedDict,
    ("flax.core.frozen_dict", "FrozenDict"): dict,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"it wants to call {module}.{name}")
        return ADMITTED[module, name]


def load(file: Path) -> object:
    """What the pickle holds; text of Python 2 is taken as latin1. Raises WeightsDamaged."""
    try:
        with file.open("rb") as stream:
            return _Unpickler(stream, encoding="latin1").load()
    except Exception as error:  # a damaged byte may be anything's length, index or name
        raise WeightsDamaged(f"{file} cannot be read as arrays alone: {error}.") from error
