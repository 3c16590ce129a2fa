"""Features of every training picture, computed once and read as a memory map.

A still has five views: the whole picture, the same mirrored, and three windows along a path
(two of a pan's ends and its middle), so that a pseudo-video can pan and zoom over a picture
without running the image network again. float16, (pictures, views, 49, 1280): 125 kB a view.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from tqdm import tqdm

from extractors.efficientnet import EfficientNetLite2
from training.corpus import read_pictures

SIDE = 224
WINDOW = 0.8
WHOLE, MIRRORED, PAN_START, PAN_MIDDLE, PAN_END = range(5)
VIEWS = 5
CHUNK = 64


@dataclass(frozen=True, eq=False)
class FeatureCache:
    """Rows of one archive. ``row`` finds a picture's by its name."""

    grid: NDArray[np.float16]
    row: dict[str, int]


def views_of(picture: NDArray[np.uint8], name: str, count: int) -> NDArray[np.uint8]:
    """(count, 224, 224, 3): the first ``count`` of the five views, squashed to squares.

    The pan's direction, and whether it is mirrored, follow from the picture's name, so that a
    cache can be made again to the bit.
    """
    image = Image.fromarray(picture)
    mirrored = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    if count <= MIRRORED:
        return _squash(image, [(0, 0, *image.size)])
    rng = np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))
    moving = mirrored if rng.random() < 0.5 else image
    whole = (0.0, 0.0, float(image.width), float(image.height))
    return np.concatenate(
        [_squash(image, [whole]), _squash(mirrored, [whole]), _squash(moving, _pan(image, rng))]
    )


def _pan(image: Image.Image, rng: np.random.Generator) -> list[tuple[float, float, float, float]]:
    """Three windows of 0.8 of each side along a straight path from edge to edge."""
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


def cached_features(
    network: EfficientNetLite2, archive: Path, names: Sequence[str], views: int, folder: Path
) -> FeatureCache:
    """The archive's features from ``folder``, computed first where they are not there yet.

    Resumes after a kill at the last whole chunk; the finished file appears under its name at once.
    """
    ordered = sorted(names)
    tag = hashlib.sha256(json.dumps([network.spec.identity, views, WINDOW, ordered]).encode()).hexdigest()[
        :16
    ]
    path = folder / f"{archive.stem}-{tag}.npy"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        _fill(network, archive, ordered, views, path)
    grid = np.load(path, mmap_mode="r")
    return FeatureCache(grid, {name: i for i, name in enumerate(ordered)})


def _fill(network: EfficientNetLite2, archive: Path, names: Sequence[str], views: int, path: Path) -> None:
    partial, done_file = path.with_suffix(".partial.npy"), path.with_suffix(".done")
    done = int(done_file.read_text() or 0) if done_file.exists() and partial.exists() else 0
    shape = (len(names), views, 49, network.width)
    mode = "r+" if done else "w+"
    grid = np.lib.format.open_memmap(partial, mode=mode, dtype=np.float16, shape=None if done else shape)
    row = {name: i for i, name in enumerate(names)}
    with tqdm(total=len(names), initial=done, desc=f"features of {archive.name}", unit="picture") as bar:
        for start, chunk in enumerate(_chunks(archive, names)):
            if (start + 1) * CHUNK <= done:
                continue
            pictures = np.concatenate([views_of(picture, name, views) for name, picture in chunk])
            rows = [row[name] for name, _ in chunk]
            grid[rows] = network.grid(pictures).reshape(len(chunk), views, 49, -1).astype(np.float16)
            done_file.write_text(str((start + 1) * CHUNK))
            bar.update(len(chunk))
    grid.flush()
    os.replace(partial, path)
    done_file.unlink(missing_ok=True)


def _chunks(archive: Path, names: Sequence[str]) -> Iterator[list[tuple[str, NDArray[np.uint8]]]]:
    chunk: list[tuple[str, NDArray[np.uint8]]] = []
    for named in read_pictures(archive, names):
        chunk.append(named)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
