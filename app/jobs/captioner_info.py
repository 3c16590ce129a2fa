"""Describes a captioner: what a worker publishes about each that it has loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from app.jobs.options import COMBINATIONS, FUSION

#: A line about each kind of captioner, for ``GET /models``, the page and ``python -m app models``.
ABOUT: Mapping[str, str] = {
    "stats": "STaTS: weighs regions followed through time against regions of one chosen frame",
    "g2l": "G2L: looks over all frames, then at the regions of the key frames that it picks for each word",
    "refocus": "Refocus: watches from the middle frame, finds the key frame, and watches again from there",
    "dual_afr": "dualAFR: chooses for each word a place and a level of abstraction of the network",
    "vanilla": "Vanilla: two LSTMs over the mean of the video, without attention",
    "temporal": "Temporal: two LSTMs that attend to moments",
    "spatial": "Spatial: two LSTMs that attend to regions of all moments",
    "fusion": "Fusion: members write, and the caption that fits the video best wins",
    "ensemble": "Ensemble: members agree on every word by the mean of their probabilities",
    "git": "GIT: a transformer that reads image tokens of a few frames and writes behind them",
    "blip": "BLIP: a text decoder that attends across to the image tokens of the frames",
    "vision_encoder_decoder": "Vision encoder-decoder: a language model that attends across to image tokens",
    "video_language": "Video-language model: a chat model that is shown frames with their times",
}


class SpeedInfo(BaseModel):
    """Holds what a caption of a 10 s clip costs, as the checkpoint's card has it; ``machine``: where
    measured.
    """

    model_config = ConfigDict(frozen=True)

    feature_seconds: float
    caption_seconds: float
    captions_per_second: float
    machine: str

    @property
    def seconds(self) -> float:
        """Adds up what somebody waits who sends one clip."""
        return self.feature_seconds + self.caption_seconds


class CaptionerInfo(BaseModel):
    """Describes a captioner that a worker has loaded.

    kind: whose paper it is; of several as one, how they are combined. members: those by default of one that
    combines. features: stream name → network, weights and preprocessing it was trained on. extractors: what
    makes them. vocabulary: a digest of the words it knows. parameters: their number. scores: metric ×100 by
    data set. seconds: of one default job, as its worker measured; None until then. source, licence: of a
    pretrained one, where it came from and under which terms. memory: bytes that it is expected to take.
    takes_prompt: whether it can be asked something, or goes on from words that it is given. classes: how many
    classes of videos it knows, by which it can be told what a video is (``category``).
    """

    model_config = ConfigDict(frozen=True)

    name: str
    weights_sha256: str
    features: dict[str, Any]
    kind: str = ""
    members: tuple[str, ...] = ()
    extractors: tuple[str, ...] = ()
    vocabulary: str = ""
    parameters: int | None = None
    scores: dict[str, Any] = {}
    speed: SpeedInfo | None = None
    seconds: float | None = None
    source: str = ""
    licence: str = ""
    memory: int | None = None
    takes_prompt: bool = False
    classes: int = 0

    @property
    def member_of(self) -> tuple[str, ...]:
        """Names what it may be a member of.

        A pretrained captioner writes parts of words of its own, whose probabilities average with nobody's.
        """
        if self.name in COMBINATIONS:
            return ()
        return (FUSION,) if self.source else COMBINATIONS
