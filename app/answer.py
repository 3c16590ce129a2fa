"""What a worker's parent and its engine say to each other. No torch: the parent never loads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

from app.advertisement import CaptionerInfo
from app.errors import JobFailure
from app.menu import Menu
from app.options import CaptionOptions
from app.states import Stage
from extractors.features import Frames
from extractors.request import DecodeRequest


@dataclass(frozen=True)
class Answer:
    """What the engine found out about one video, ready for JSON.

    captions: best first, each ``{"text", "score", "words": [{"word", "logprob"}]}``. attention: the document
    of the best caption, or None where it was not asked for. model: captioner, weights, features, options and
    version. timings: seconds in ``extract`` and ``caption``, of the whole batch where several ran together.
    """

    captions: list[dict[str, Any]]
    attention: dict[str, Any] | None
    model: dict[str, Any]
    timings: dict[str, float]


@dataclass(frozen=True)
class EngineInfo:
    """What an engine can do once it is warm.

    requests: captioner → the frames that its extractors want; those of its members come beside them. request:
    of one that is not listed. default: the captioner of jobs that name none.
    """

    device: str
    captioners: tuple[CaptionerInfo, ...]
    request: DecodeRequest
    requests: Mapping[str, DecodeRequest] = field(default_factory=dict)
    default: str | None = None

    def request_for(self, options: CaptionOptions) -> DecodeRequest:
        """One decode for all that the job's captioners look at."""
        try:
            choice = Menu(self.captioners, self.default).choose(options)
        except JobFailure:
            return self.request  # the engine will say why
        names = dict.fromkeys((choice.captioner, *choice.members))
        wanted = [self.requests[name] for name in names if name in self.requests]
        return DecodeRequest.together(wanted) if wanted else self.request


Report: TypeAlias = Callable[[Stage, float], None]
"""Called with the stage that runs and the share of it that is done."""


class Engine(Protocol):
    """From frames to captions, in a process of its own. Made from Settings, loading its models."""

    def warm_up(self) -> EngineInfo:
        """Runs everything once, so that the first job is not the slow one."""
        ...

    def describe_and_caption(
        self, videos: Sequence[Frames], options: Sequence[CaptionOptions], report: Report
    ) -> list[Answer | JobFailure]:
        """For each video its answer, or why this one video cannot have one."""
        ...
