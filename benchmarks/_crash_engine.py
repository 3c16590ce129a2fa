"""Engines for benchmarks/crash.py: a video's colour says what to do, so that the whole path is real.

Cyan takes three seconds, magenta kills the process, everything else is captioned as usual.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

from app.advertisement import CaptionerInfo
from app.answer import Answer, EngineInfo, Report
from app.default_captioner import FALLBACK
from app.errors import JobFailure
from app.options import CaptionOptions
from app.pipeline import Engine
from app.settings import Settings
from extractors.features import Frames
from extractors.request import DecodeRequest

SLOW_SECONDS = 3.0
COLOURS = {"plain": (90, 140, 60), "slow": (0, 255, 255), "poison": (255, 0, 255)}


class Obedient(Engine):
    """The real engine with its real weights, which obeys the colours first."""

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[Answer | JobFailure]:
        obey(videos, report)
        return super().describe_and_caption(videos, options, report)


class Sleeping:
    """An engine without models, for ``--fast``."""

    def __init__(self, settings: Settings) -> None:
        self._device = settings.device

    def warm_up(self) -> EngineInfo:
        captioner = CaptionerInfo(name=FALLBACK, weights_sha256="0" * 64, features={})
        return EngineInfo(self._device, (captioner,), DecodeRequest())

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[Answer | JobFailure]:
        obey(videos, report)
        caption = {"text": "a colour", "score": -1.0, "words": []}
        return [Answer([caption], None, {"captioner": wanted.captioner}, {}) for wanted in options]


def obey(videos: Sequence[Frames], report: Report) -> None:
    report("extract", 0.0)
    for video in videos:
        red, green, blue = video.pixels.mean(axis=(0, 1, 2))
        if min(red, blue) > 200 and green < 60:
            os.kill(os.getpid(), signal.SIGSEGV)
        if min(green, blue) > 200 and red < 60:
            time.sleep(SLOW_SECONDS)
