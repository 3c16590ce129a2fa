"""Declares what the service answers, as values with types.

Members that a newer service adds are kept (``model_extra``), and those that an older one lacks are None: a
client and a service of different versions understand each other. ``GET /docs`` of the service explains each.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["queued", "running", "succeeded", "failed", "canceled", "expired"]
Stage = Literal["fetch", "decode", "extract", "caption"]


class Document(BaseModel):
    """Is what all answers are made of."""

    model_config = ConfigDict(frozen=True, extra="allow")


class Note(Document):
    """Warns: the job went on, and this is what to know about its answer."""

    code: str
    message: str


class Fault(Document):
    """Describes why a job failed, with what to do about it in ``hint``."""

    code: str
    message: str
    hint: str


class Media(Document):
    """Describes the file as displayed. Times in seconds."""

    container: str | None = None
    codec: str | None = None
    duration: float | None = None
    first_picture: float | None = None
    width: int | None = None
    height: int | None = None
    picture: tuple[float, float, float, float] | None = None
    rotation: int | None = None
    fps: float | None = None
    fps_average: float | None = None
    frames: int | None = None
    frames_expected: int | None = None
    frames_lost: int | None = None
    times_estimated: bool | None = None
    has_audio: bool | None = None
    audio_codec: str | None = None


class ScoredWord(Document):
    """Holds a word and the natural logarithm of its probability."""

    word: str
    logprob: float


class ScoredCaption(Document):
    """Holds a caption."""

    text: str
    score: float  #: its log-probability over length ** length_penalty
    words: list[ScoredWord] = Field(default_factory=list)


class Segment(Document):
    """Holds a segment of a film. Times are seconds of the film."""

    start: float
    end: float
    representative: float
    caption: str
    score: float | None = None
    number: int | None = None  #: its place, from 0, where known


class FoundMoment(Document):
    """Is a moment of a job that fits a search. Times in seconds; ``picture``: the address of its frame."""

    job: str
    source: str
    start: float
    end: float
    representative: float
    caption: str
    fit: float
    picture: str


class FoundMoments(Document):
    """Holds what a search has found, the best first."""

    moments: list[FoundMoment]


class JobSummary(Document):
    """Describes how far a job is, as the list of jobs has it."""

    id: str
    state: State
    stage: Stage | None = None
    progress: float = 0.0
    created_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    attempt: int = 0
    filename: str | None = None
    caption: str | None = None
    metadata: dict[str, Any] | None = None
    batch: str | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")


class Job(JobSummary):
    """Holds a job with its answer, as far as it is."""

    media: Media | None = None
    sampled: list[float] | None = None
    warnings: list[Note] = Field(default_factory=list)
    captions: list[ScoredCaption] | None = None
    segments: list[Segment] | None = None
    model: dict[str, Any] | None = None
    timings: dict[str, float | None] | None = None
    error: Fault | None = None
    place: int | None = None
    estimated_seconds: float | None = None
    workers: int | None = None
    priority: str | None = None
    source_url: str | None = None
    validate_only: bool | None = None
    estimate: dict[str, Any] | None = None
    recaption_of: str | None = None
    urls: dict[str, str | None] | None = None
    #: The service's mark of this state of the job, to ask for changes since.
    etag: str | None = Field(None, exclude=True)


class JobPage(Document):
    """Holds a page of the list of jobs, newest first."""

    jobs: list[JobSummary]
    next: str | None = None  #: the cursor of the page after it


class Batch(Document):
    """Holds a batch."""

    id: str
    counts: dict[str, int]  #: jobs by state, and ``total``
    jobs: list[dict[str, Any]] = Field(default_factory=list)

    @property
    def is_over(self) -> bool:
        return not (self.counts.get("queued", 0) or self.counts.get("running", 0))


class Event(Document):
    """Holds one event of a job."""

    kind: str  #: ``state``, ``segment``, ``end``, or ``lost`` where some are gone
    id: str | None
    data: dict[str, Any]


class Delivery(Document):
    """Describes one attempt to deliver a webhook."""

    at: datetime | None = None
    status: int | None = None


class Captioner(Document):
    """Describes a captioner that a live worker has."""

    name: str
    kind: str = ""
    about: str = ""
    plain: str = ""
    members: list[str] | None = None
    scores: dict[str, Any] = Field(default_factory=dict)
    seconds: float | None = None
    workers: int = 0


class Models(Document):
    """Lists the captioners of live workers."""

    captioners: list[Captioner]
    default: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)  #: JSON Schema of each option


class Attention(Document):
    """Tells from which moment and place each word comes.

    ``evidence`` has what each word needs, the maps beside it where the captioner looked; a job has those that
    its option ``explanation`` asks for.
    """

    words: list[str]
    content: list[bool] | None = None  #: [word], whether it names something
    times: list[list[float]]  #: [moment], start and end in seconds
    parts: list[list[float]] | None = None  #: [moment], start and end in seconds
    #: [word][moment], each row sums to one; None for a word that had none.
    temporal: list[list[float] | None]
    entropy: list[float | None] | None = None
    spread: list[bool] | None = None
    #: Weights within each moment over a grid's cells or over boxes.
    spatial: dict[str, Any] | None = None
    #: Parts of the kinds moments, weights, text and table, which explain the caption beside the maps.
    extras: list[dict[str, Any]] = Field(default_factory=list)
    #: temporal, entropy, spread and spatial as above, and of each word ``moments`` and ``boxes``.
    evidence: dict[str, Any] | None = None
