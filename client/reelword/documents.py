"""Declares what the service answers, as values with types.

Members that a newer service adds are kept (``model_extra``), and those that an older one lacks are None: a
client and a service of different versions understand each other. ``GET /docs`` of the service explains each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    confidence: float | None = None  #: how often captions alike are right, in [0, 1]; None where not known


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


class JobDocument(JobSummary):
    """Holds a job with its answer, as far as it is; ``Job`` and ``AsyncJob`` are this with methods."""

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


class KeptVerdict(Document):
    """Holds what a person said of a caption."""

    verdict: Literal["right", "partly", "wrong"]
    correction: str = ""  #: what the caption should be, where it is not right
    job: str
    file: str  #: the video's name
    captioner: str | None = None
    caption: str  #: that was judged
    time: float  #: seconds since 1970


class Access(Document):
    """Tells whose key a client has."""

    required: bool  #: whether the service asks for one
    name: str | None = None  #: whom it is for; None where there is none, or none that opens
    scopes: list[str] = Field(default_factory=list)  #: what it may do


class DeliveryAttempt(Document):
    """Describes one attempt to deliver a webhook."""

    number: int  #: from 1
    at: datetime | None = None
    status: int | None = None
    error: str | None = None
    seconds: float | None = None


class Delivery(Document):
    """Describes what was done to deliver one message to a job's webhook."""

    webhook_id: str
    type: str  #: of the message
    state: str  #: ``pending``, ``delivered`` or ``failed``
    host: str | None = None
    next_attempt_at: datetime | None = None
    attempts: list[DeliveryAttempt] = Field(default_factory=list)


class Deliveries(Document):
    """Lists the deliveries of a job."""

    deliveries: list[Delivery]


class TestedWebhook(Document):
    """Tells how a trial message was answered."""

    webhook_id: str
    delivered: bool
    status: int | None = None
    error: str | None = None
    seconds: float | None = None


class WebhookMessage(Document):
    """Holds the body of a webhook's request."""

    type: str  #: ``job.started``, ``job.segment``, ``job.succeeded``, ``job.failed`` or ``job.canceled``
    timestamp: datetime | None = None
    data: dict[str, Any]  #: of the job


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


class Label(Document):
    """Names what a network recognised, and when and where."""

    text: str  #: the class
    title: str | None = None  #: how it was seen: by motion, in the picture, in a box
    time: float | None = None  #: seconds at which it begins
    end: float | None = None  #: seconds at which it ends
    weight: float | None = None  #: how likely it is
    box: tuple[float, float, float, float] | None = None  #: x0 y0 x1 y1 in [0, 1] of the picture


class Word(Document):
    """Holds a word of the caption with the moment and place that it comes from."""

    text: str
    content: bool  #: whether it names something; of a function word nothing below is known
    start: float | None = None  #: seconds at which its moment begins; None where no moment stands out
    end: float | None = None  #: seconds at which it ends
    box: tuple[float, float, float, float] | None = None  #: x0 y0 x1 y1 in [0, 1] of the picture
    label: str | None = None  #: what was recognised then that the word is of
    evidence: list[float] | None = None  #: weights over ``Attention.times``, which sum to one
    labels: list[Label] = Field(default_factory=list)  #: what was recognised that the word is of


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
    #: Of each word ``moment``, ``start``, ``end``, ``label`` and ``box``, as all of the service shows them.
    located: list[dict[str, Any]] | None = None
    #: temporal, entropy, spread and spatial as above, and of each word ``moments`` and ``boxes``.
    evidence: dict[str, Any] | None = None

    @property
    def by_word(self) -> list[Word]:
        """Pairs each word with its moment, its place and its labels.

        These are of the evidence, and of the attention where the job has no other.
        """
        shown = self.evidence or {"temporal": self.temporal, "spread": self.spread}
        labels = next((part["words"] for part in self.extras if part.get("name") == "labels"), None)
        return [self._make_word(place, shown, labels) for place in range(len(self.words))]

    def _make_word(
        self, place: int, shown: Mapping[str, Any], labels: Sequence[list[dict[str, Any]] | None] | None
    ) -> Word:
        weights = _at(shown.get("temporal"), place)
        located = _at(self.located, place) or self._locate(shown, place)
        return Word(
            text=self.words[place],
            content=weights is not None if self.content is None else self.content[place],
            start=located["start"],
            end=located["end"],
            label=located["label"],
            box=located["box"],
            evidence=weights,
            labels=[Label(**each) for each in _at(labels, place) or ()],
        )

    def _locate(self, shown: Mapping[str, Any], place: int) -> dict[str, Any]:
        """Locates a word of a service that does not tell it yet: labels do not count."""
        weights, moment = _at(shown.get("temporal"), place), _at(shown.get("moments"), place)
        if moment is None and weights and "moments" not in shown and not _at(self.spread, place):
            moment = max(range(len(weights)), key=weights.__getitem__)
        start, end = (None, None) if moment is None else self.times[moment]
        return {"start": start, "end": end, "label": None, "box": _at(shown.get("boxes"), place)}


def _at(values: Sequence[Any] | None, place: int) -> Any:
    """Takes the value of a word; None where there are none."""
    return None if values is None else values[place]
