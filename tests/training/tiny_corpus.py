"""A captioned set drawn by code: coloured shapes in a tar with COCO-form captions, and a network for them."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from extractors.features import StreamSpec
from lab.pictures.picture_batches import CachedNetwork, TrainingItem, load_set
from lab.pictures.picture_features import VIEWS, PictureNetwork
from training.batches.archives import read_items

COLOURS = {"red": (200, 30, 30), "green": (30, 160, 60), "blue": (40, 60, 200), "yellow": (220, 200, 40)}
SHAPES = ("circle", "square")


def draw(colour: str, shape: str, place: int) -> Image.Image:
    image = Image.new("RGB", (48, 36), (120, 120, 120))
    pen, x = ImageDraw.Draw(image), 4 + 5 * (place % 5)
    box = (x, 8, x + 18, 26)
    (pen.ellipse if shape == "circle" else pen.rectangle)(box, fill=COLOURS[colour])
    return image


def kinds(count: int) -> Iterator[tuple[str, str, int]]:
    for i in range(count):
        yield list(COLOURS)[i % 4], SHAPES[i // 4 % 2], i // 8


def png(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"pictures/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def write_corpus(folder: Path, count: int = 32) -> tuple[Path, Path]:
    """(archive, captions): ``count`` pictures named in another order than the tar holds them."""
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, bytes] = {}
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for i, (colour, shape, place) in enumerate(kinds(count)):
        name = f"{(i * 37) % 1000:03d}.png"
        files[name] = png(draw(colour, shape, place))
        images.append({"id": i, "file_name": name, "split": "train"})
        texts = (f"a {colour} {shape}.", f"A {shape} that is {colour}", f"the {colour} {shape} on grey")
        annotations += [{"image_id": i, "caption": text} for text in texts]
    captions = folder / "shapes_captions.json"
    captions.write_text(json.dumps({"images": images, "annotations": annotations}))
    return write_tar(folder / "shapes.tar", files), captions


class Averages:
    """Stands for the picture network: a cell's mean colour and its square, 8 numbers, repeatable."""

    spec = StreamSpec("averages", hashlib.sha256(b"averages").hexdigest(), "none")
    shapes: Mapping[str, tuple[int, int]] = {"grid": (49, 8)}

    def __init__(self) -> None:
        self.calls = 0

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        self.calls += 1
        cells = pictures.reshape(len(pictures), 7, 32, 7, 32, 3).mean((2, 4)) / 128 - 1
        values = np.concatenate([cells, cells**2, cells[..., :2] * cells[..., 1:]], -1)
        return {"grid": values.reshape(len(pictures), 49, 8).astype(np.float16)}


class Corners(Averages):
    """Two more streams, as the stages of a network are: a frame's four corners and its middle."""

    spec = StreamSpec("corners", hashlib.sha256(b"corners").hexdigest(), "none")
    shapes: Mapping[str, tuple[int, int]] = {"corners": (4, 3), "middle": (1, 3)}

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        self.calls += 1
        corners = pictures[:, [0, 0, -1, -1], [0, -1, 0, -1]]
        middle = pictures[:, None, pictures.shape[1] // 2, pictures.shape[2] // 2]
        return {name: (x / 256).astype(np.float16) for name, x in (("corners", corners), ("middle", middle))}


def captioned(
    folder: Path, count: int = 32, network: PictureNetwork | None = None, *others: CachedNetwork
) -> list[TrainingItem]:
    archive, captions = write_corpus(folder, count)
    networks: Sequence[CachedNetwork] = [CachedNetwork(network or Averages(), VIEWS), *others]
    return load_set(networks, archive, read_items(captions), folder / "cache")
