"""An engine without a network: a caption is what colour its frames have on average, in rough steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from app.documents.job import Answer, Model
from app.errors import CaptionerUnknown, JobFailure
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import EngineAnswer, EngineInfo, Report
from app.segments.film_captioner import FilmCaptioner
from app.settings import Settings
from extractors.features import Frames
from extractors.media.request import DecodeRequest
from extractors.shots.segment import SegmentOptions
from extractors.windows import Sampling
from models.caption import AttentionDocument, ScoredCaption, ScoredWord
from tests.app.segments.colour_space import ColourSpace


@dataclass
class ColourEngine:
    """request: the frames that it wants. seen: the videos of each call. fail_at: the call that it refuses."""

    request: DecodeRequest = field(default_factory=lambda: DecodeRequest(Sampling(count=4), short_side=48))
    seen: list[list[Frames]] = field(default_factory=list)
    fail_at: int | None = None

    @property
    def info(self) -> EngineInfo:
        captioner = CaptionerInfo(name="colour", weights_sha256="0" * 64, features={})
        return EngineInfo("cpu", (captioner,), self.request, default="colour")

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        self.seen.append(list(videos))
        if len(self.seen) == self.fail_at:
            return [CaptionerUnknown("There is no such captioner.")] * len(videos)
        return [self._answer(frames, given) for frames, given in zip(videos, options, strict=True)]

    def _answer(self, frames: Frames, options: CaptionOptions) -> EngineAnswer:
        text = caption_of(frames)
        words = [ScoredWord(word=word, logprob=-0.1) for word in text.split()]
        moments = [[float(time), float(time) + 0.1] for time in frames.pts]
        weights: list[list[float] | None] = [[1.0 / len(frames)] * len(frames) for _ in words]
        attention = AttentionDocument(words=text.split(), times=moments, parts=moments, temporal=weights)
        answer = Answer(
            caption=text,
            captions=[ScoredCaption(text=text, score=-1.0, words=words)],
            model=Model(captioner="colour", weights_sha256="0" * 64, options=options.model_dump()),
        )
        return EngineAnswer(answer, attention.model_dump_json() if options.attention else None)


def caption_of(frames: Frames) -> str:
    """The colour, in steps that neither compression nor the choice of frames moves far."""
    red, green, blue = frames.pixels.mean(axis=(0, 1, 2))
    return f"a scene of {red:.0f} {green:.0f} {blue:.0f}"


def colour_captioner(folder: Path, engine: ColourEngine | None = None, **changes: object) -> FilmCaptioner:
    """A captioner of films by their colours, with its journals below the folder."""
    given = {
        "load_engine": lambda: engine or ColourEngine(),
        "settings": Settings(data=folder / "data"),
        "options": CaptionOptions(),
        "segments": SegmentOptions("shots"),
        "weights": ["colour"],
        "load_space": ColourSpace,
        **changes,
    }
    return FilmCaptioner(**given)  # type: ignore[arg-type]
