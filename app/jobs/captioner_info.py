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
    features: dict[str, Any]  #: stream name → network, weights and preprocessing it was trained on
    kind: str = ""  #: whose paper it is; of several as one, how they are combined
    about: str = ""  #: what it does, in a line
    plain: str = ""  #: the same in a visitor's words
    members: tuple[str, ...] = ()  #: of one that combines: its members by default
    extractors: tuple[str, ...] = ()  #: what makes its streams
    vocabulary: str = ""  #: a digest of the words it knows
    parameters: int | None = None  #: their number
    scores: dict[str, Any] = {}  #: metric × 100 by data set
    speed: SpeedInfo | None = None  #: of a 10 s clip, as its card has it
    seconds: float | None = None  #: of one default job, as its worker measured; None until then
    source: str = ""  #: of a pretrained one: where it came from
    licence: str = ""  #: of a pretrained one: under which terms
    memory: int | None = None  #: of a pretrained one: bytes that it is expected to take
    takes_prompt: bool = False  #: whether it can be asked something, or continues words that it is given
    classes: int = 0  #: how many classes of videos it knows, of which a request can name one (``category``)

    @property
    def member_of(self) -> tuple[str, ...]:
        """Names what it may be a member of.

        A pretrained captioner writes parts of words of its own, whose probabilities average with no other's.
        """
        if self.name in COMBINATIONS:
            return ()
        return (FUSION,) if self.source else COMBINATIONS
