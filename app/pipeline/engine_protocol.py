"""Declares what passes between a worker's parent and its engine; imports no torch."""

import json
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from app import __version__
from app.documents.job import Answer, Media, Note, Timings
from app.errors import EngineStartFailed, JobFailure
from app.jobs.captioner_choice import CaptionerChoices
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job import Stage
from app.jobs.options import CaptionerChoice, CaptionOptions
from app.settings import Settings
from extractors.features import WHOLE, Frames
from extractors.media.bars import find_picture
from extractors.media.errors import WarningCode
from extractors.media.request import Decoded, DecodeRequest


@dataclass(frozen=True)
class EngineAnswer:
    """Holds what the engine found out about one video."""

    #: Captions, model and timings; the seconds are of the whole batch where several ran together.
    answer: Answer
    #: The best caption's document as JSON, which goes to the client as it is; None unless asked for.
    attention: str | None
    #: Returns the streams that the caption was written from, packed; None where they are too large to keep.
    #: It stays in the engine's process, and is None where the caption was written from frames.
    pack_streams: Callable[[], bytes | None] | None = None
    packed_streams: bytes | None = None  #: the packed streams, where they are to be kept


@dataclass(frozen=True)
class EngineInfo:
    """Holds what an engine can do once it is warm."""

    device: str
    captioners: tuple[CaptionerInfo, ...]
    request: DecodeRequest  #: the frames for a captioner that ``requests`` does not list
    #: Captioner → the frames that its extractors want; those of its members come beside them.
    requests: Mapping[str, DecodeRequest] = field(default_factory=dict)
    default: str | None = None  #: the captioner of jobs that name none
    #: Captioner → what names all that decides the streams that feed it, but for the frames; captioners that
    #: look at frames themselves are left out.
    feature_identities: Mapping[str, str] = field(default_factory=dict)
    #: Captioners whose seconds are not known yet, and that ``measure`` takes.
    unmeasured: tuple[str, ...] = ()

    def measured(self, captioner: str, seconds: float | None) -> Self:
        """Notes what a captioner took for a grey video; None where it could not be measured."""
        captioners = [
            info.model_copy(update={"seconds": seconds}) if info.name == captioner else info
            for info in self.captioners
        ]
        rest = tuple(name for name in self.unmeasured if name != captioner)
        return replace(self, captioners=tuple(captioners), unmeasured=rest)

    def resolve(self, options: CaptionOptions) -> CaptionOptions:
        """Fills in who writes. Raises CaptionerUnknown, EmbeddingMissing, InvalidMembers."""
        if options.choice is not None:
            return options
        return options.with_choice(CaptionerChoices(self.captioners, self.default).resolve(options))

    def request_for(self, choice: CaptionerChoice | None) -> DecodeRequest:
        """Joins what the job's captioners look at to one decode."""
        names = () if choice is None else dict.fromkeys((choice.captioner, *choice.members))
        requests = [self.requests[name] for name in names if name in self.requests]
        return DecodeRequest.together(requests) if requests else self.request

    def feature_basis(self, options: CaptionOptions) -> str | None:
        """Names all that decides the features that a video is captioned from, the video apart.

        Captioners that share their streams have one name; None where a writer looks at frames itself.
        """
        identities, choice = self.feature_identities, options.choice
        if choice is None or any(name not in identities for name in choice.writers):
            return None
        fed = sorted({identities[name] for name in (choice.captioner, *choice.members) if name in identities})
        return json.dumps([__version__, self.device, fed, repr(self.request_for(choice)), options.bars])


@dataclass(frozen=True, eq=False)
class SemanticVectors:
    """Holds unit vectors in one space; the product of two is how well they fit."""

    pictures: NDArray[np.float32]  #: (N, D)
    sentences: NDArray[np.float32]  #: (M, D)


def media_answer(decoded: Decoded, decode_seconds: float, options: CaptionOptions) -> Answer:
    """Makes the part of a job's answer that is known after decoding.

    Args:
        decode_seconds: that this took.
        options: whether bars are left out.
    """
    view = WHOLE if options.bars == "keep" else find_picture(decoded.frames.pixels)
    warnings = list(decoded.video.warnings)
    if view != WHOLE:
        width, height = (round(100 * (view[k + 2] - view[k])) for k in (0, 1))
        warnings.append(WarningCode.BARS_LEFT_OUT.warn(width=width, height=height))
    return Answer(
        media=Media(**decoded.video.media(), picture=None if view == WHOLE else view),
        sampled=[round(float(seconds), 4) for seconds in decoded.footage.shown_frames.pts],
        warnings=[Note(code=warning.code, message=warning.message) for warning in warnings],
        timings=Timings(decode=round(decode_seconds, 4)),
    )


class Report(Protocol):
    """Is called with the stage that runs, the share of it that is done, and what is written so far."""

    def __call__(self, stage: Stage, share: float, text: str = "") -> None: ...


class CaptionEngine(Protocol):
    """Makes captions of frames, in a process of its own. Made from Settings, loading its models."""

    def warm_up(self) -> EngineInfo:
        """Runs what most jobs need once, so that the first one is not the slow one."""

    def measure(self, captioner: str) -> float:
        """Captions a grey video with one of the ``unmeasured``, and returns the seconds that it took."""

    def describe_and_caption(
        self, videos: Sequence[Frames | bytes], options: Sequence[CaptionOptions], report: Report
    ) -> list[EngineAnswer | JobFailure]:
        """Captions videos, each as its options say; returns for each its answer, or why it has none.

        Args:
            videos: their frames, or the packed streams of an earlier answer.
            options: one a video; who writes has been chosen in them.
        """

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        """Embeds pictures, each a video of one frame, and sentences; None where there is no embedding."""


def load_engine(settings: Settings) -> CaptionEngine:
    """Makes the engine that the settings name. Raises EngineStartFailed where there is none of that name."""
    try:
        make = pkgutil.resolve_name(settings.engine)
    except (AttributeError, ImportError, ValueError) as error:
        default = Settings.model_fields["engine"].default
        raise EngineStartFailed(
            f"REELWORD_ENGINE names {settings.engine}, which cannot be imported ({error}); as module:name it "
            f"would be {default}, which is the default"
        ) from error
    engine: CaptionEngine = make(settings)
    return engine


def ignore_progress(stage: Stage, share: float, text: str = "") -> None:
    """Ignores progress that is not shown.

    Args:
        stage, share, text: as of ``Report``.
    """
