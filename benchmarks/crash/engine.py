"""The real engine with its real weights, which obeys the colours first."""

from __future__ import annotations

from collections.abc import Sequence

from app.errors import JobFailure
from app.jobs.options import CaptionOptions
from app.pipeline.engine import Engine
from app.pipeline.engine_protocol import EngineAnswer, Report
from benchmarks.crash.colours import obey
from extractors.features import Frames


class Obedient(Engine):
    def describe_and_caption(
        self, videos: Sequence[Frames | bytes], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        obey([video for video in videos if isinstance(video, Frames)], report)
        return super().describe_and_caption(videos, options, report)
