"""A semantic space without a network: pictures by their mean colour, sentences by the numbers in them."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]


class ColourSpace:
    """``ColourEngine``'s captions tell the mean colour, so that a picture and its caption are near."""

    digest = "1" * 64

    def pictures(self, pictures: Sequence[NDArray[np.uint8]]) -> Vectors:
        return unit([picture.mean(axis=(0, 1)) for picture in pictures])

    def sentences(self, sentences: Sequence[str]) -> Vectors:
        """Where there are no three numbers, what fits nothing: grey."""
        told = [[float(number) for number in re.findall(r"\d+", text)][:3] for text in sentences]
        return unit([np.array(colour if len(colour) == 3 else [128.0] * 3) for colour in told])


def unit(colours: Sequence[NDArray[np.float64]]) -> Vectors:
    """Colours around grey, of length one."""
    rows = np.stack(colours) - 128.0
    return np.asarray(rows / (np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9), np.float32)
