"""Drawn shapes as the demo's streams show pictures: of the widths that the real captioners eat."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import StreamSpec
from lab.ablations.corpus import AblationCorpus
from tests.training.tiny_corpus import Averages, write_corpus
from training.batches.archives import read_items
from training.batches.picture_batches import CachedNetwork, hold_out, load_set
from training.batches.picture_features import VIEWS

#: Pictures, and those of them that rows are judged by.
COUNT, HELD_OUT = 24, 8


class DemoStreams(Averages):
    """A cell's eight numbers, repeated up to the width of the image net's map or of one of its stages."""

    spec = StreamSpec("demo shapes", hashlib.sha256(b"demo shapes").hexdigest(), "none")
    shapes: Mapping[str, tuple[int, int]] = {"grid": (49, 1280), "stage_14": (196, 120), "stage_7": (49, 352)}

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        cells = super().of_pictures(pictures)["grid"]
        finer = cells.reshape(-1, 7, 7, 8).repeat(2, axis=1).repeat(2, axis=2).reshape(-1, 196, 8)
        by_count = {49: cells, 196: finer}
        return {n: np.tile(by_count[count], (1, 1, width // 8)) for n, (count, width) in self.shapes.items()}


def demo_shapes(folder: Path) -> AblationCorpus:
    """In float32, so that what is compared to the bit can be."""
    archive, captions = write_corpus(folder, COUNT)
    network = CachedNetwork(DemoStreams(), VIEWS)
    items = load_set([network], archive, read_items(captions), folder / "cache")
    kept, held_out = hold_out(items, HELD_OUT, "shapes/", 1)
    corpus = AblationCorpus.from_items(
        "demo", kept, held_out, dict.fromkeys(DemoStreams.shapes, DemoStreams.spec)
    )
    return replace(corpus, precision=torch.float32)
