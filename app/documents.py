"""The JSON that callers read: a job, its captions, where they looked; for HTTP and the command line alike.

Absent members are null, never missing, so that a client can rely on every name.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.states import Stage, State


class Document(BaseModel):
    model_config = ConfigDict(frozen=True)


class Note(Document):
    """A warning: the job went on, and this is what to know about its answer."""

    code: str
    message: str


class Fault(Document):
    """Why a job failed; ``hint`` says what to do about it."""

    code: str
    message: str
    hint: str


class Media(Document):
    """What the file is, as displayed, and what decoding it found. Times in seconds."""

    container: str | None = None
    codec: str | None = None
    duration: float | None = None
    width: int | None = None
    height: int | None = None
    rotation: int | None = Field(None, description="Degrees that a player turns the stored picture by.")
    fps: float | None = None
    frames: int | None = Field(None, description="Found in the file, by its packets or by decoding.")
    frames_expected: int | None = Field(None, description="As the file's header claims.")
    frames_lost: int | None = Field(None, description="Tried but undecodable.")
    times_estimated: bool | None = Field(None, description="The file carries no usable timestamps.")
    has_audio: bool | None = None
    audio_codec: str | None = None


class ScoredWord(Document):
    word: str
    logprob: float


class ScoredCaption(Document):
    """``score``: the caption's log-probability over length ** length_penalty."""

    text: str
    score: float
    words: list[ScoredWord]


class Model(Document):
    """Which captioner wrote the caption, from which features, with which options."""

    captioner: str
    weights_sha256: str | None = None
    features: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    version: str | None = None


class Timings(Document):
    """Seconds spent in each stage; ``total`` is from acceptance to end."""

    queue: float | None = None
    decode: float | None = None
    extract: float | None = None
    caption: float | None = None
    total: float | None = None


class JobDocument(Document):
    """One job, as ``GET /jobs/{id}`` answers with it."""

    id: str
    state: State
    stage: Stage | None = None
    progress: float = Field(0, ge=0, le=1)
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    started_at: str | None = None
    ended_at: str | None = None
    attempt: int = 0
    media: Media | None = None
    sampled: list[float] | None = Field(None, description="Seconds of the frames that were used.")
    warnings: list[Note] = Field(default_factory=list)
    caption: str | None = None
    captions: list[ScoredCaption] | None = None
    model: Model | None = None
    timings: Timings | None = None
    error: Fault | None = None


class FileDocument(JobDocument):
    """A file captioned by the command line: a job's members, no id, and the file's path as it was given."""

    id: str | None = None  # type: ignore[assignment]
    file: str


class JobUrls(Document):
    """Where to go on; ``cancel`` is asked with DELETE, the others with GET."""

    self: str
    attention: str
    attention_png: str
    cancel: str


class Accepted(Document):
    """The answer to an upload."""

    id: str
    state: State
    urls: JobUrls


class GridAttention(Document):
    kind: Literal["grid"]
    rows: int = Field(ge=1)
    columns: int = Field(ge=1)
    weights: list[list[list[float]] | None] = Field(description="[word][time][cell], cells row by row.")


class BoxAttention(Document):
    kind: Literal["boxes"]
    weights: list[list[list[float]] | None] = Field(description="[word][time][box].")
    boxes: list[list[list[float]]] = Field(description="[time][box], x0 y0 x1 y1 in [0, 1] of the picture.")


class AttentionDocument(Document):
    """Where the captioner looked for each word of its best caption; null for a word that had no attention."""

    words: list[str]
    times: list[list[float]] = Field(description="[time], start and end in seconds.")
    temporal: list[list[float] | None] = Field(description="[word][time], each row sums to one.")
    spatial: Annotated[GridAttention | BoxAttention, Field(discriminator="kind")] | None = None
    extras: dict[str, Any] = Field(default_factory=dict, description="The captioner's own weights.")
