"""Writes features for other people's code: ``.npy`` files and HDF5, by the names of v-iashin/video_features.

That extractor writes ``NAME_<key>.npy`` for each stream, ``NAME_fps.npy`` and ``NAME_timestamps_ms.npy``, a
row's time being the end of its window. What its layout has no place for lies beside it: ``<key>-times``,
``<key>-boxes``, ``<key>-mask``, ``<key>-view`` and a description. HDF5 has the same arrays in ``NAME.h5``,
and for code that reads one file with a data set a video (``f["NAME"][()]``), ``link`` makes such files of
links.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from extractors.files import atomic_write
from extractors.video_features.feature_files import FeatureHeader, FeaturesDamaged, FileFormat, SavedFeatures
from extractors.video_features.packed_streams import Arrays, collect_arrays

#: What the public extractor calls the same vectors; any other stream's key is its own name.
PUBLIC_KEYS: Mapping[str, str] = {
    "i3d_rgb": "rgb",
    "i3d_flow": "flow",
    "resnet50": "resnet",
    "resnet101": "resnet",
    "resnet152": "resnet",
}


def choose_key(stream: str, extractor: str) -> str:
    """Chooses a stream's public name: ``rgb_grid`` for ``i3d_rgb_grid``, ``grid`` for ``grid``."""
    if extractor in PUBLIC_KEYS and (stream == extractor or stream.startswith(f"{extractor}_")):
        return PUBLIC_KEYS[extractor] + stream.removeprefix(extractor)
    return stream


def to_public_arrays(saved: SavedFeatures) -> Arrays:
    """Names the arrays by the public keys. fps: float64 (), timestamps_ms: float64 (T,) of the first stream,
    ``<key>-times``: float64 (T, 2) seconds."""
    first = next(iter(saved.streams.values()))
    arrays: Arrays = {"fps": np.array(saved.fps, np.float64), "timestamps_ms": first.end * 1000}
    for name, stream in saved.streams.items():
        key = choose_key(name, saved.tag.extractor)
        arrays |= {
            member.replace(f"{name}.values", key).replace(f"{name}.", f"{key}-"): array
            for member, array in collect_arrays({name: stream}).items()
            if not member.endswith((".start", ".end"))
        }
        arrays[f"{key}-times"] = np.stack([stream.start, stream.end], 1)
    return arrays


def from_public_arrays(header: FeatureHeader, public: Mapping[str, NDArray[Any]]) -> Arrays:
    """Undoes ``to_public_arrays``."""
    arrays: Arrays = {}
    for name in header.streams:
        key = choose_key(name, header.tag.extractor)
        arrays[f"{name}.values"] = public[key]
        arrays[f"{name}.start"], arrays[f"{name}.end"] = np.ascontiguousarray(public[f"{key}-times"].T)
        for member in ("boxes", "mask", "view"):
            if f"{key}-{member}" in public:
                arrays[f"{name}.{member}"] = public[f"{key}-{member}"]
    return arrays


class PublicForm(FileFormat):
    """Is read as all files whose arrays have the public names are."""

    def _to_own_names(self, header: FeatureHeader, arrays: Arrays) -> Arrays:
        return from_public_arrays(header, arrays)


class NpyForm(PublicForm):
    """Writes ``NAME_<key>.npy``, and last ``NAME_spec.json``, which says what the others must sum up to."""

    name, ending = "npy", "_spec.json"

    def write(self, folder: Path, name: str, saved: SavedFeatures) -> None:
        arrays = to_public_arrays(saved)
        for key, array in arrays.items():
            with atomic_write(folder / f"{name}_{key}.npy") as unfinished, unfinished.open("wb") as file:
                np.save(file, array)
        header = FeatureHeader.of(saved, arrays)
        with atomic_write(self.main_file(folder, name)) as unfinished:
            unfinished.write_text(header.to_json(), encoding="utf-8")

    def _open(self, folder: Path, name: str, *, with_arrays: bool) -> tuple[FeatureHeader, Arrays]:
        file = self.main_file(folder, name)
        try:
            header = FeatureHeader.from_json(file.read_text(encoding="utf-8"), file)
        except (OSError, UnicodeDecodeError) as error:
            raise FeaturesDamaged(f"{file} cannot be read ({error}).") from error
        try:
            keys = header.arrays if with_arrays else ()
            return header, {key: np.load(folder / f"{name}_{key}.npy") for key in keys}
        except (OSError, ValueError, EOFError) as error:
            raise FeaturesDamaged(f"An array beside {file} cannot be read ({error}).") from error


class Hdf5Form(PublicForm):
    """Writes ``NAME.h5``: a data set a key; the description is the attribute ``reelword``. Needs h5py."""

    name, ending = "hdf5", ".h5"

    def write(self, folder: Path, name: str, saved: SavedFeatures) -> None:
        import h5py

        arrays = to_public_arrays(saved)
        with atomic_write(self.main_file(folder, name)) as unfinished, h5py.File(unfinished, "w") as file:
            for key, array in arrays.items():
                file.create_dataset(key, data=array)
            file.attrs["reelword"] = FeatureHeader.of(saved, arrays).to_json()

    def _open(self, folder: Path, name: str, *, with_arrays: bool) -> tuple[FeatureHeader, Arrays]:
        import h5py

        path = self.main_file(folder, name)
        try:
            with h5py.File(path, "r") as file:
                header = FeatureHeader.from_json(str(file.attrs["reelword"]), path)
                keys = header.arrays if with_arrays else ()
                return header, {key: file[key][()] for key in keys}
        except (OSError, KeyError, RuntimeError) as error:
            raise FeaturesDamaged(f"{path} cannot be read ({error}).") from error


def link(folder: Path) -> list[Path]:
    """Links the ``.h5`` files of an extractor's folder: for every stream ``<key>.hdf5``, a data set a video.

    Files of features that cannot be read are left out.
    """
    import h5py

    form = Hdf5Form()
    places: dict[str, list[Path]] = {}
    for file in sorted(folder.rglob("*.h5")):
        try:
            header = form.header(file.parent, file.stem)
        except FeaturesDamaged:
            continue
        for stream in header.streams:
            places.setdefault(choose_key(stream, header.tag.extractor), []).append(file.relative_to(folder))
    written = []
    for key, files in places.items():
        with atomic_write(folder / f"{key}.hdf5") as unfinished, h5py.File(unfinished, "w") as collection:
            for file in files:
                collection[os.fsencode(file.with_suffix("").as_posix())] = h5py.ExternalLink(
                    os.fspath(file), key
                )
        written.append(folder / f"{key}.hdf5")
    return written
