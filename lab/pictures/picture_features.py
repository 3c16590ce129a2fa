"""Computes features of every training picture once, and reads them as a memory map.

A still has five views: the whole picture, the same mirrored, and three windows along a path
(two of a pan's ends and its middle), so that a pseudo-video can pan and zoom over a picture
without running the image network again. float16, one array (pictures, views, N, C) a stream: the
grid takes 125 kB a view. Of a stream fewer views, the first, may be kept.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from extractors.features import StreamSpec
from training.batches.archives import read_pictures

SIDE = 224
WINDOW = 0.8
WHOLE, MIRRORED, PAN_START, PAN_MIDDLE, PAN_END = range(5)
VIEWS = 5
CHUNK = 64


@dataclass(frozen=True, eq=False)
class PictureStreams:
    """Rows of one archive, stream → (pictures, views, N, C). ``row`` finds a picture's by its name."""

    streams: Mapping[str, NDArray[np.float16]]
    row: Mapping[str, int]

    @property
    def views(self) -> int:
        """The number of views that every stream has."""
        return min(int(values.shape[1]) for values in self.streams.values())

    def take(
        self, rows: Sequence[int] | NDArray[np.int64], views: Sequence[int] | NDArray[np.int64]
    ) -> dict[str, NDArray[np.float16]]:
        """Returns stream → (T, N, C) of T pairs of row and view."""
        return {name: values[rows, views] for name, values in self.streams.items()}

    def keep_streams(self, names: Collection[str]) -> PictureStreams:
        """Returns the same pictures without other streams, which then are not read."""
        kept = {name: values for name, values in self.streams.items() if name in names}
        return PictureStreams(kept, self.row)

    def join(self, other: PictureStreams) -> PictureStreams:
        """Returns the same pictures with the streams of both."""
        return PictureStreams({**self.streams, **other.streams}, self.row)


class PictureNetwork(Protocol):
    """Computes features of pictures. shapes: stream → (N, C). spec: of network, weights and input."""

    spec: StreamSpec

    @property
    def shapes(self) -> Mapping[str, tuple[int, int]]: ...

    def of_pictures(self, pictures: NDArray[np.uint8]) -> Mapping[str, NDArray[np.float16]]:
        """Computes stream → (B, N, C) of pictures uint8 (B, H, W, 3)."""


@runtime_checkable
class WholePictureNetwork(Protocol):
    """Computes features of pictures in their own shape, and of no other views of them."""

    def of_stills(self, pictures: Sequence[NDArray[np.uint8]]) -> Mapping[str, NDArray[np.float16]]:
        """Computes stream → (B, N, C) of B pictures uint8 (H, W, 3)."""


def cut_views(picture: NDArray[np.uint8], name: str, count: int) -> NDArray[np.uint8]:
    """Cuts the first of a picture's five views, squashed to squares.

    The pan's direction, and whether it is mirrored, follow from the picture's name, so that a cache can be
    made again to the bit.

    Args:
        picture: uint8 (H, W, 3).
        name: the picture's.
        count: how many views.

    Returns:
        uint8 (count, 224, 224, 3).
    """
    image = Image.fromarray(picture)
    mirrored = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if count <= PAN_START:
        both = [_squash(each, [(0, 0, *image.size)]) for each in (image, mirrored)]
        return np.concatenate(both[:count])
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    moving = mirrored if rng.random() < 0.5 else image
    whole = (0.0, 0.0, float(image.width), float(image.height))
    return np.concatenate(
        [_squash(image, [whole]), _squash(mirrored, [whole]), _squash(moving, _place_windows(image, rng))]
    )


def _place_windows(image: Image.Image, rng: np.random.Generator) -> list[tuple[float, float, float, float]]:
    """Places three windows of 0.8 of each side along a straight path from edge to edge."""
    free_x, free_y = image.width * (1 - WINDOW), image.height * (1 - WINDOW)
    angle = rng.uniform(0, 2 * np.pi)
    dx, dy = np.array([np.cos(angle), np.sin(angle)]) / max(abs(np.cos(angle)), abs(np.sin(angle)))
    boxes = []
    for step in (-1, 0, 1):
        x, y = free_x * (1 + step * dx) / 2, free_y * (1 + step * dy) / 2
        boxes.append((x, y, x + image.width * WINDOW, y + image.height * WINDOW))
    return boxes


def _squash(image: Image.Image, boxes: Sequence[tuple[float, float, float, float]]) -> NDArray[np.uint8]:
    return np.stack([np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)) for box in boxes])


def load_features(
    network: PictureNetwork, archive: Path, names: Sequence[str], views: int, folder: Path
) -> PictureStreams:
    """Loads an archive's features, which are computed first where they are not there yet.

    Resumes after a kill at the last whole chunk; the finished files appear under their names at the end.

    Args:
        network: computes them.
        archive: a tar or a folder of pictures.
        names: the pictures'.
        views: how many of each picture.
        folder: where they are kept.
    """
    ordered = sorted(names)
    key = json.dumps([network.spec.identity, views, WINDOW, ordered])
    tag = hashlib.sha256(key.encode()).hexdigest()[:16]
    paths = {stream: folder / f"{archive.stem}-{stream}-{tag}.npy" for stream in network.shapes}
    if not all(path.exists() for path in paths.values()):
        folder.mkdir(parents=True, exist_ok=True)
        _fill(network, archive, ordered, views, paths)
    streams = {stream: np.load(path, mmap_mode="r") for stream, path in paths.items()}
    return PictureStreams(streams, {name: i for i, name in enumerate(ordered)})


def _fill(
    network: PictureNetwork, archive: Path, names: Sequence[str], views: int, paths: Mapping[str, Path]
) -> None:
    done_file = next(iter(paths.values())).with_suffix(".done")
    partials = {stream: path.with_suffix(".partial.npy") for stream, path in paths.items()}
    begun = done_file.exists() and all(partial.exists() for partial in partials.values())
    pictures_done = int(done_file.read_text() or 0) if begun else 0
    shape = (len(names), views)
    arrays = {
        stream: _open_array(partials[stream], None if pictures_done else (*shape, *network.shapes[stream]))
        for stream in paths
    }
    row = {name: i for i, name in enumerate(names)}
    with tqdm(
        total=len(names), initial=pictures_done, desc=f"features of {archive.name}", unit="picture"
    ) as bar:
        for start, chunk in enumerate(_read_chunks(archive, names)):
            if (start + 1) * CHUNK <= pictures_done:
                continue
            rows = [row[name] for name, _ in chunk]
            for stream, values in _compute_features(network, chunk, views).items():
                arrays[stream][rows] = values.reshape(len(chunk), views, *values.shape[1:])
            done_file.write_text(str((start + 1) * CHUNK))
            bar.update(len(chunk))
    for stream, path in paths.items():
        arrays[stream].flush()
        os.replace(partials[stream], path)
    done_file.unlink(missing_ok=True)


def _compute_features(
    network: PictureNetwork, chunk: Sequence[tuple[str, NDArray[np.uint8]]], views: int
) -> Mapping[str, NDArray[np.float16]]:
    """Computes features of the views of some pictures: stream → (pictures · views, N, C)."""
    if isinstance(network, WholePictureNetwork):
        return network.of_stills([picture for _, picture in chunk])
    return network.of_pictures(np.concatenate([cut_views(picture, name, views) for name, picture in chunk]))


def _open_array(
    path: Path, shape: tuple[int, ...] | None
) -> np.memmap[tuple[int, ...], np.dtype[np.float16]]:
    """Opens a new array of that shape, or the one that is there for None."""
    mode: Literal["r+", "w+"] = "r+" if shape is None else "w+"
    return np.lib.format.open_memmap(path, mode=mode, dtype=np.float16, shape=shape)


def _read_chunks(archive: Path, names: Sequence[str]) -> Iterator[list[tuple[str, NDArray[np.uint8]]]]:
    chunk: list[tuple[str, NDArray[np.uint8]]] = []
    for named in read_pictures(archive, names):
        chunk.append(named)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
