"""Describes a captioner: what a worker publishes about each that it has loaded."""

from typing import Any

from pydantic import BaseModel, Field

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
    kind: str = Field("", description="Whose paper it is; `fusion` and `ensemble` are made of others.")
    about: str = Field("", description="What it does, in a line.")
    plain: str = Field("", description="The same in a visitor's words; empty where it has none.")
    members: tuple[str, ...] = ()  #: of one that combines: its members by default
    weights_sha256: str
    parameters: int | None = Field(None, description="How many, the members' included.")
    vocabulary: str = ""  #: a digest of the words it knows
    features: dict[str, Any] = Field(
        description="Stream → network, weights and preprocessing it was trained on."
    )
    extractors: tuple[str, ...] = Field((), description="What makes these streams.")
    scores: dict[str, Any] = Field({}, description="Metric × 100, by data set.")
    speed: SpeedInfo | None = Field(
        None,
        description="Seconds from a 10 s clip to its features and from there to its caption, where measured.",
    )
    seconds: float | None = Field(None, description="Of one default job, as its worker measured.")
    source: str = ""  #: of a pretrained one: where it came from
    licence: str = ""  #: of a pretrained one: under which terms
    memory: int | None = Field(None, description="Of a pretrained one: bytes that it is expected to take.")
    takes_prompt: bool = Field(False, description="Whether it can be asked something by `prompt`.")
    classes: int = Field(0, description="How many classes of videos it knows, one of which `category` names.")

    @property
    def joins(self) -> tuple[str, ...]:
        """Names what it may be a member of.

        A pretrained captioner writes parts of words of its own, whose probabilities average with no other's.
        """
        if self.name in COMBINATIONS:
            return ()
        return (FUSION,) if self.source else COMBINATIONS
