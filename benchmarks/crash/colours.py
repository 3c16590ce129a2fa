"""Clips of one colour, and what an engine does when it sees one: so that the whole path is real.

Cyan takes three seconds, magenta kills the process, everything else is captioned as usual.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import av
import numpy as np

from app.documents.job import Answer, Model
from app.errors import JobFailure
from app.jobs.captioner_choice import FALLBACK
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report, SemanticVectors
from app.settings import Settings
from extractors.features import Frames
from extractors.media.request import DecodeRequest
from models.caption import ScoredCaption

SLOW_SECONDS = 3.0
COLOURS = {"plain": (90, 140, 60), "slow": (0, 255, 255), "poison": (255, 0, 255)}


def draw(path: Path, colour: tuple[int, int, int]) -> Path:
    """Two seconds of one colour."""
    picture = np.full((96, 128, 3), colour, np.uint8)
    with av.open(str(path), "w") as out:
        stream = out.add_stream("libx264", rate=10)
        stream.width, stream.height, stream.pix_fmt = 128, 96, "yuv420p"
        for _ in range(20):
            out.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        out.mux(stream.encode())
    return path


def obey(videos: Sequence[Frames], report: Report) -> None:
    report("extract", 0.0)
    for video in videos:
        red, green, blue = video.pixels.mean(axis=(0, 1, 2))
        if min(red, blue) > 200 and green < 60:
            os.kill(os.getpid(), signal.SIGSEGV)
        if min(green, blue) > 200 and red < 60:
            time.sleep(SLOW_SECONDS)


class Sleeping:
    """An engine without models, for ``--fast``."""

    def __init__(self, settings: Settings) -> None:
        self._device = settings.device

    def warm_up(self) -> EngineInfo:
        captioner = CaptionerInfo(name=FALLBACK, weights_sha256="0" * 64, features={}, seconds=0.0)
        return EngineInfo(self._device, (captioner,), DecodeRequest())

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        obey(videos, report)
        caption = ScoredCaption(text="a colour", score=-1.0, words=[])
        answer = Answer(caption=caption.text, captions=[caption], model=Model(captioner=FALLBACK))
        return [EngineAnswer(answer, None) for _ in options]

    def embed(self, *_: Sequence[Frames] | Sequence[str]) -> SemanticVectors | None:
        """Knows no embedding."""
        return None
