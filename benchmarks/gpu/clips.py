"""Measures clips a second with decoding: a decoder a core reads what the device looks at."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from benchmarks.gpu.measuring import Measuring
from benchmarks.support.film_shapes import X264, FilmShape
from benchmarks.support.rows import Row
from extractors.decoder.decoder import Decoder
from extractors.extractor import create
from extractors.video_features.extract_videos import extract_videos

CLIP = FilmShape("10 s 720p", ".mp4", "libx264", 1280, 720, 250, X264)
SHORT_CLIP = FilmShape("1 s 180p", ".mp4", "libx264", 320, 180, 25, X264)
#: Of a core.
CLIPS = 4
NETWORKS = ("efficientnet-lite2", "resnet50")


def measure_clips(measuring: Measuring, cache: Path) -> Iterator[Row]:
    """Yields the clips a second of a network, on the device and beside it on the CPU.

    Args:
        measuring: on which device.
        cache: of converted networks.
    """
    cores = 1 if measuring.quick else min(16, os.cpu_count() or 1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clip = (SHORT_CLIP if measuring.quick else CLIP).draw(Path(folder) / "clip.mp4")
        decoders = [stack.enter_context(Decoder()) for _ in range(cores)]
        for name in NETWORKS[:1] if measuring.quick else NETWORKS:
            extractor = create(name, measuring.device, cache=cache, weights="seeded")
            count = cores * (1 if measuring.quick else CLIPS)
            list(extract_videos(decoders, [clip] * cores, [extractor]))  # starts processes, warms up
            began = time.perf_counter()
            for _, outcome in extract_videos(decoders, [clip] * count, [extractor]):
                if isinstance(outcome, Exception):
                    raise outcome
            speed = count / (time.perf_counter() - began)
            note = f"{cores} decoders, every frame, {measuring.memory()}".rstrip(", ")
            yield Row("gpu", f"clips with decoding, {name}", speed, "clips/s", better="more", note=note)
