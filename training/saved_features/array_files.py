"""Reads arrays of other people's files: ``.npy``, ``.npz`` and HDF5, and turns their axes."""

from __future__ import annotations

import math
import os
import threading
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extractors.errors import name_missing_packages
from extractors.video_features.feature_files import FeaturesDamaged

#: HDF5 files that stay open: opening one takes longer than reading a video's rows.
OPEN_FILES = 16
#: Ways that files fail to be what their names say.
DAMAGED = (OSError, ValueError, EOFError, KeyError, RuntimeError, zipfile.BadZipFile)


class ArrayFiles:
    """Reads arrays by file and key. Each process opens HDF5 files of its own."""

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[int, Path], Any] = OrderedDict()
        self._lock = threading.Lock()  # a thread might close the file that another one reads

    def __reduce__(self) -> tuple[type[ArrayFiles], tuple[()]]:
        """Leaves open files behind where the reader is sent to another process."""
        return ArrayFiles, ()

    def shape(self, file: Path, key: str | None) -> tuple[int, ...]:
        """Reads an array's shape alone.

        Raises FileNotFoundError where the file or the key is not there, FeaturesDamaged.
        """
        if file.suffix == ".npy":
            return self._load(file, "r").shape
        if file.suffix == ".npz":
            return self.read(file, key).shape
        with self._lock:
            return tuple(self._find(file, key).shape)

    def read(self, file: Path, key: str | None) -> NDArray[Any]:
        """Reads an array.

        Raises FileNotFoundError where the file or the key is not there, FeaturesDamaged.
        """
        if file.suffix == ".npy":
            return self._load(file, None)
        if file.suffix == ".npz":
            return self._read_npz(file, key)
        with self._lock:
            data_set = self._find(file, key)
            try:
                return np.asarray(data_set[()])
            except DAMAGED as error:
                raise FeaturesDamaged(f"{key} of {file} cannot be read ({error}).") from error

    def _load(self, file: Path, mode: Any) -> NDArray[Any]:
        try:
            loaded: NDArray[Any] = np.load(file, mmap_mode=mode)
        except FileNotFoundError:
            raise
        except DAMAGED as error:
            raise FeaturesDamaged(f"{file} cannot be read ({error}).") from error
        return loaded

    def _read_npz(self, file: Path, key: str | None) -> NDArray[Any]:
        try:
            with np.load(file) as arrays:
                name = key or next(iter(arrays.files))
                if name not in arrays.files:
                    raise FileNotFoundError(f"{file} has no {name}")
                array: NDArray[Any] = arrays[name]
        except FileNotFoundError:
            raise
        except DAMAGED as error:
            raise FeaturesDamaged(f"{file} cannot be read ({error}).") from error
        return array

    def _find(self, file: Path, key: str | None) -> Any:
        """Finds a data set of an HDF5 file."""
        import h5py

        opened = self._open_hdf5(file)
        data_set = opened.get(key) if key else None
        if not isinstance(data_set, h5py.Dataset):
            raise FileNotFoundError(f"{file} has no data set {key!r}")
        return data_set

    def _open_hdf5(self, file: Path) -> Any:
        place = (os.getpid(), file)
        if place not in self._open:
            self._open[place] = _open_hdf5(file)
            if len(self._open) > OPEN_FILES:
                self._open.popitem(last=False)[1].close()
        self._open.move_to_end(place)
        return self._open[place]


def _open_hdf5(file: Path) -> Any:
    with name_missing_packages():
        import h5py
    if not file.is_file():
        raise FileNotFoundError(f"there is no {file}")
    try:
        return h5py.File(file, "r")
    except DAMAGED as error:
        raise FeaturesDamaged(f"{file} cannot be read as HDF5 ({error}).") from error


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
