"""Reads arrays of other people's files: ``.npy``, ``.npz``, ``.pt`` and HDF5, and turns their axes."""

import math
import os
import pickle
import threading
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.errors import name_missing_packages
from extractors.video_features.feature_files import FeaturesDamaged

#: Files that stay open: opening one takes longer than reading a video's rows.
OPEN_FILES = 16
#: Ways that files fail to be what their names say.
DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile)


@dataclass(frozen=True)
class SavedArray:
    """Says where the array of one video lies."""

    file: Path
    key: str | None = None  #: of a ``.npz``, ``.pt`` or HDF5 file that holds several
    row: int | None = None  #: of the first axis, in an array of all videos


class ArrayFiles:
    """Reads arrays by their places. Each process opens files of its own."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, Path], Any] = OrderedDict()
        self._lock = threading.Lock()  # a thread might close the file that another one reads

    def __reduce__(self) -> tuple[type["ArrayFiles"], tuple[()]]:
        """Leaves open files behind where the reader is sent to another process."""
        return ArrayFiles, ()

    def shape(self, place: SavedArray) -> tuple[int, ...]:
        """Reads an array's shape alone.

        Raises FileNotFoundError where the file or the key is not there, FeaturesDamaged.
        """
        with self._lock, _name_damage(place.file):
            shape = tuple(self._find(place).shape)
        if place.row is None:
            return shape
        if place.row >= shape[0]:
            raise FeaturesDamaged(f"{place.file} has {shape[0]} rows, and its list of ids is longer.")
        return shape[1:]

    def read(self, place: SavedArray) -> NDArray[Any]:
        """Reads an array, which may be written to.

        Raises FileNotFoundError where the file or the key is not there, FeaturesDamaged.
        """
        which: Any = () if place.row is None else place.row
        with _name_damage(place.file):
            with self._lock:
                array = self._find(place)
                if not isinstance(array, np.ndarray):  # of HDF5, whose file another thread might close
                    return np.asarray(array[which])
            return np.array(array[which])  # a map of the file, copied while others read

    def _find(self, place: SavedArray) -> Any:
        opened = self._open_once(place.file)
        if isinstance(opened, np.ndarray):
            return opened
        key = next(iter(opened)) if place.key is None and place.file.suffix == ".npz" else place.key
        array = opened.get(key) if key else None
        if not hasattr(array, "shape"):
            names = ", ".join(map(str, islice(opened, 3))) or "none"
            raise FileNotFoundError(f"{place.file} has no data set {key!r}; there are: {names} …")
        return array

    def _open_once(self, file: Path) -> Any:
        place = (os.getpid(), file)
        if place not in self._open:
            self._open[place] = _open_file(file)
            if len(self._open) > OPEN_FILES:
                _, oldest = self._open.popitem(last=False)
                if not isinstance(oldest, np.ndarray | dict):
                    oldest.close()
        self._open.move_to_end(place)
        return self._open[place]


@contextmanager
def _name_damage(file: Path) -> Iterator[None]:
    """Raises FeaturesDamaged for what a damaged file, or one of another form, raises."""
    try:
        yield
    except FileNotFoundError:
        raise
    except pickle.UnpicklingError as error:  # torch's own sentences tell how to run what a file may hold
        raise FeaturesDamaged(f"{file} cannot be read: it holds other things than tensors.") from error
    except DAMAGED as error:
        forms = "there are .npy, .npz, .pt and HDF5"
        raise FeaturesDamaged(f"{file} cannot be read ({error}); {forms}.") from error


def _open_file(file: Path) -> Any:
    """Opens a file: an array, mapped into memory, or several by key."""
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}")
    if file.suffix in (".npy", ".npz"):
        return np.load(file, mmap_mode="r")
    if file.suffix in (".pt", ".pth"):
        loaded = torch.load(file, "cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
        return (
            {str(key): _as_array(each) for key, each in loaded.items()}
            if isinstance(loaded, Mapping)
            else _as_array(loaded)
        )
    with name_missing_packages():
        import h5py
    return h5py.File(file, "r")


def _as_array(value: Any) -> Any:
    """Turns a tensor into an array, bfloat16, which NumPy lacks, as float32; leaves what is none."""
    if not isinstance(value, torch.Tensor):
        return value
    fixed = value.detach()
    return (fixed.float() if fixed.dtype == torch.bfloat16 else fixed).numpy()


def choose_axes(dimensions: int, *, regions: bool) -> str | None:
    """Guesses the axes of an array; None where it has too many or none.

    Returns letters as ``MappedStream.axes`` has them.
    """
    usual = {2: "NC", 3: "TNC", 4: "THWC"} if regions else {1: "C", 2: "TC", 3: "1TC"}
    return usual.get(dimensions)


def arranged_shape(shape: tuple[int, ...], axes: str) -> tuple[int, ...] | None:
    """Computes the shape (T, C) or (T, N, C) that ``arrange`` gives; None where the axes are others."""
    sizes = dict(zip(axes, shape, strict=False))
    if len(axes) != len(shape) or sizes.get("1", 1) != 1:
        return None
    places = [sizes[axis] for axis in "NHW" if axis in sizes]
    return (sizes.get("T", 1), *([math.prod(places)] if places else []), sizes["C"])


def arrange(array: NDArray[Any], axes: str) -> NDArray[Any]:
    """Turns an array to (T, C), or to (T, N, C) with the cells of a grid row by row."""
    shape = arranged_shape(array.shape, axes)
    if shape is None:
        raise ValueError(f"an array of {array.shape} has no axes {axes}")
    order = [axes.index(axis) for axis in "1TNHWC" if axis in axes]
    return array.transpose(order).reshape(shape)
