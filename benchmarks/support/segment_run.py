"""One run of a film's segments in a process of its own, told line by line to whoever watches it.

python -m benchmarks.support.segment_run FILM DATA captions|none SHORTEST

SHORTEST: seconds of a segment, at least.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.documents.job import Answer
from app.documents.segments import SegmentDocument
from app.errors import JobFailure
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report
from app.segments.caption_segments import SegmentEngine
from app.segments.film_captioner import FilmCaptioner
from app.settings import Settings
from extractors.features import Frames
from extractors.media.request import DecodeRequest
from extractors.shots.segment import SegmentOptions
from models.caption import ScoredCaption

TOLERANCE = 0.1  #: seconds between a cut and the border that stands for it


def is_near(time: float, times: Sequence[float]) -> bool:
    """Whether any of the times is the same moment."""
    return any(abs(time - other) <= TOLERANCE for other in times)


class NoCaptioner:
    """Says nothing of the videos that it is given."""

    info = EngineInfo(
        "none", (CaptionerInfo(name="none", weights_sha256="", features={}),), DecodeRequest(), default="none"
    )

    def describe_and_caption(
        self, videos: Sequence[Frames], *_: Sequence[CaptionOptions] | Report
    ) -> list[EngineAnswer | JobFailure]:
        captions = [ScoredCaption(text="", score=0.0, words=[])]
        return [EngineAnswer(Answer(caption="", captions=captions), None) for _ in videos]


def main(film: Path, data: Path, captions: str, shortest: float) -> None:
    """A line of JSON for each segment with the seconds since the models were loaded, and one at the end."""
    began = time.perf_counter()
    captioner = _captioner(data, captions == "captions", shortest)
    kept = len(captioner.known(film))
    loaded = time.perf_counter()

    def show(segment: SegmentDocument) -> None:
        line = {"seconds": time.perf_counter() - loaded, "start": segment.start, "caption": segment.caption}
        print(json.dumps(line), flush=True)

    document = captioner.caption(film, show).model_dump(mode="json")
    print(json.dumps({"loaded": loaded - began, "known": kept, "document": document}), flush=True)


def _captioner(data: Path, captions: bool, shortest: float) -> FilmCaptioner:
    settings = Settings(data=data)
    segments = SegmentOptions("shots", minimum=shortest, maximum=max(20.0, 2.5 * shortest))
    options = CaptionOptions(attention=False)
    engine: SegmentEngine = NoCaptioner()
    load_space: Any = lambda: None  # noqa: E731
    if captions:
        from app.pipeline.engine import Engine
        from app.pipeline.semantic_space import load_semantic_space

        engine, load_space = Engine(settings), lambda: load_semantic_space(settings)
    return FilmCaptioner(
        lambda: engine, settings, options, segments, ["default"], load_space, summary=captions
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], float(sys.argv[4]))
