"""Describes a captioner: what a worker publishes about each that it has loaded."""

from typing import Any

from pydantic import BaseModel

from app.jobs.options import COMBINATIONS, FUSION


class SpeedInfo(BaseModel, frozen=True):
    """Holds what a caption of a 10 s clip costs, as the card has it; ``machine``: where measured."""

    feature_seconds: float
    caption_seconds: float
    captions_per_second: float
    machine: str

    @property
    def seconds(self) -> float:
        """Adds up the seconds of one clip."""
        return self.feature_seconds + self.caption_seconds


class CaptionerInfo(BaseModel, frozen=True):
    """Describes a captioner that a worker has loaded."""

    name: str
    weights_sha256: str
    #: Stream name → network, weights and preprocessing it was trained on.
    features: dict[str, Any]
    #: Whose paper it is; of several as one, how they are combined.
    kind: str = ""
    #: What it does, in a line.
    about: str = ""
    #: The same in a visitor's words.
    plain: str = ""
    #: Of one that combines: its members by default.
    members: tuple[str, ...] = ()
    #: What makes its streams.
    extractors: tuple[str, ...] = ()
    #: A digest of the words it knows.
    vocabulary: str = ""
    #: Their number.
    parameters: int | None = None
    #: Metric × 100 by data set.
    scores: dict[str, Any] = {}
    #: Of a 10 s clip, as its card has it.
    speed: SpeedInfo | None = None
    #: Of one default job, as its worker measured; None until then.
    seconds: float | None = None
    #: Of a pretrained one: where it came from.
    source: str = ""
    #: Of a pretrained one: under which terms.
    licence: str = ""
    #: Of a pretrained one: bytes that it is expected to take.
    memory: int | None = None
    #: Whether it can be asked something, or continues words that it is given.
    takes_prompt: bool = False
    #: How many classes of videos it knows, of which a request can name one (``category``).
    classes: int = 0

    @property
    def member_of(self) -> tuple[str, ...]:
        """Names what it may be a member of.

        A pretrained captioner writes parts of words of its own, whose probabilities average with no other's.
        """
        if self.name in COMBINATIONS:
            return ()
        return (FUSION,) if self.source else COMBINATIONS
