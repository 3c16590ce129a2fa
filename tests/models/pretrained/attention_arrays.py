"""An attention document as arrays, for tests that reckon with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from models.caption import AttentionDocument, Caption, GridAttention


@dataclass(frozen=True, eq=False)
class AttentionArrays:
    """times (T, 2); temporal (L, T); spatial (L, T, N), zeros for a word that had none; grid: its sides."""

    words: list[str]
    times: NDArray[np.float64]
    temporal: NDArray[np.float64]
    spatial: NDArray[np.float64]
    grid: tuple[int, int]

    @classmethod
    def of(cls, document: AttentionDocument) -> AttentionArrays:
        assert isinstance(document.spatial, GridAttention)
        grid = document.spatial.rows, document.spatial.columns
        moments, cells = len(document.times), grid[0] * grid[1]
        temporal = [row or [0.0] * moments for row in document.temporal]
        spatial = [row or [[0.0] * cells] * moments for row in document.spatial.weights]
        return cls(document.words, np.array(document.times), np.array(temporal), np.array(spatial), grid)

    @classmethod
    def of_caption(cls, caption: Caption) -> AttentionArrays:
        assert caption.attention is not None
        return cls.of(caption.attention)
