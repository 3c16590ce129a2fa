"""Extracts features of stills by the extractors that the service runs, each still a video of one frame.

Networks of windows are shown that frame alone: what ``i3d_brief`` says of a still does not depend on how
often it is repeated. Pictures keep their shape, as frames of videos do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.features import Frames, Stream
from models.feature_sources.feature_source import FeatureSource
from models.stream_set import StreamSet
from training.evaluation.evaluated_captioner import show_frames

SECONDS, SIDE = 0.04, 224


class StillNetwork:
    """Makes one extractor's streams of pictures.

    shapes: stream → (N, C). spec: the name tag of all of them.

    Args:
        extractor: As the set names it.
        streams: The set; of a derived extractor those that it takes are made with it.
        device: On which networks compute.
    """

    def __init__(self, extractor: str, streams: StreamSet, device: torch.device) -> None:
        built = [each for each in streams.inputs if each.extractor == extractor]
        self.shapes: Mapping[str, tuple[int, int]] = {each.stream: (each.count, each.width) for each in built}
        single = show_frames(streams.select([each.stream for each in built]), most=1)
        self._source = FeatureSource(replace(single, spread=1), str(device))
        # off a grey picture, since that of a derived stream is made with it
        (grey,) = self._extract([np.full((SIDE, SIDE, 3), 128, np.uint8)])
        self.spec = grey[next(iter(self.shapes))].spec

    def of_stills(self, pictures: Sequence[NDArray[np.uint8]]) -> dict[str, NDArray[np.float16]]:
        """Extracts features of pictures.

        pictures: B pictures uint8 (H, W, 3), of any sizes. Returns stream → (B, N, C), zeros where a picture
        has fewer rows.
        """
        extracted = self._extract(pictures)
        return {
            name: np.stack([pad_rows(streams[name], *shape) for streams in extracted])
            for name, shape in self.shapes.items()
        }

    def of_pictures(self, pictures: NDArray[np.uint8]) -> dict[str, NDArray[np.float16]]:
        """Extracts features of pictures uint8 (B, H, W, 3) of one size: stream → (B, N, C)."""
        return self.of_stills(list(pictures))

    def _extract(self, pictures: Sequence[NDArray[np.uint8]]) -> list[dict[str, Stream]]:
        return self._source.extract(
            [Frames(picture[None], np.zeros(1), SECONDS, 1 / SECONDS) for picture in pictures]
        )


def pad_rows(stream: Stream, count: int, width: int) -> NDArray[np.float16]:
    """Puts the rows of a still's stream into (count, width), zeros after the last.

    Args:
        stream: of one picture.
        count: rows that are returned; further ones are left out.
        width: numbers of a row.
    """
    rows = stream.values.reshape(-1, width)[:count].half().numpy()
    return np.pad(rows, ((0, count - len(rows)), (0, 0)))
