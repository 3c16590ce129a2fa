"""Reads the clips of a folder: what captioners are fed of each, and where a detector sees things in it."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from app.settings import Settings
from extractors.catalog.coco_ssd import CocoSSD
from extractors.decoder.decoder import Decoder
from extractors.extractor import create
from extractors.features import Features, Frames
from extractors.media.errors import MediaError
from models.feature_sources.feature_source import StreamSource

#: A picture is a video of one frame.
VIDEOS = {".mp4", ".mkv", ".avi", ".webm", ".gif", ".jpg", ".png", ".webp"}
#: A thing is taken to be there from this probability on.
SURE = 0.4


@dataclass(frozen=True, eq=False)
class Things:
    """Holds what a detector sees in a video.

    times: (T,) seconds of its frames. boxes: for each frame, by COCO's class, boxes (K, 4), x0 y0 x1 y1 in
    [0, 1] of the picture.
    """

    times: NDArray[np.float64]
    boxes: Sequence[Mapping[str, NDArray[np.float64]]]


@dataclass(frozen=True, eq=False)
class Clip:
    """Holds one video: its streams by name, and what a detector sees where that was asked for."""

    name: str
    features: Features
    things: Things | None = field(default=None)


def list_videos(folder: Path, skipped: Sequence[str] = ()) -> list[Path]:
    """Lists the videos of a folder in the order of their names, without those whose names are skipped."""
    return sorted(each for each in folder.iterdir() if each.suffix in VIDEOS and each.name not in skipped)


def read_clips(
    source: StreamSource, files: Sequence[Path], detector: CocoSSD | None = None
) -> Iterator[Clip]:
    """Reads each file that can be decoded; the others are told on standard error.

    Args:
        source: Makes the streams.
        files: Videos.
        detector: Looks for things, None for nothing.
    """
    with Decoder(Settings().decoder) as decoder:
        for file in files:
            try:
                footage = decoder.decode(file, source.request).footage
            except MediaError as error:
                print(f"{file.name}: {error}", file=sys.stderr)
                continue
            things = None if detector is None else find_things(detector, footage.shown_frames)
            yield Clip(file.name, source.extract([footage])[0], things)


def open_detector(boxes: int = 20) -> CocoSSD:
    """Opens the packaged detector of COCO's things."""
    detector = create(f"coco_ssd:{boxes}")
    assert isinstance(detector, CocoSSD)
    return detector


def find_things(detector: CocoSSD, frames: Frames) -> Things:
    """Looks for things in each of a video's frames."""
    rows = detector.extract_windows(detector.prepare(torch.from_numpy(frames.pixels))[:, None])
    (detections,) = rows.values()
    scores, boxes = detections.values.float().numpy(), detections.boxes
    assert boxes is not None
    return Things(
        frames.pts, [_by_class(detector, *each) for each in zip(scores, boxes.numpy(), strict=True)]
    )


def _by_class(
    detector: CocoSSD, scores: NDArray[np.float64], boxes: NDArray[np.float64]
) -> dict[str, NDArray[np.float64]]:
    """Sorts one frame's boxes (K, 4) by their classes. scores: (K, classes)."""
    kinds, sure = scores.argmax(1), scores.max(1) >= SURE
    return {detector.classes[kind]: boxes[sure & (kinds == kind)] for kind in np.unique(kinds[sure]).tolist()}
