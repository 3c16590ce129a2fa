"""Declares the JSON of a job and its answer, for HTTP, the command line and the record alike.

Captions, and where a captioner looked, are declared in models/caption.py. Absent members are null, never
missing, so that a client can rely on every name.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field

from app.errors import RecordUnreadable
from app.jobs.blobs import BlobMissingError, Blobs
from app.jobs.job import Job, Priority, QueuePosition, Stage, State
from app.jobs.keeping.kept_segments import KeptSegments, kept_by
from models.caption import ScoredCaption

#: States of a job whose upload is gone, and which has no attention.
WITHOUT_VIDEO = ("failed", "canceled", "expired")


class Document(BaseModel, frozen=True, json_schema_serialization_defaults_required=True):
    """Is the base of what is written as JSON: each member is always there."""


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
    """Describes the file as displayed, and what decoding it found. Times in seconds."""

    container: str | None = None
    codec: str | None = None
    duration: float | None = None
    first_picture: float | None = Field(None, description="When the first frame is shown, as players count.")
    width: int | None = None
    height: int | None = None
    picture: tuple[float, float, float, float] | None = Field(
        None, description="What was captioned, bars left out: x0 y0 x1 y1 in [0, 1]; null for all of it."
    )
    rotation: int | None = Field(None, description="Degrees that a player turns the stored picture by.")
    fps: float | None = Field(None, description="Nominal, what the container claims.")
    fps_average: float | None = Field(None, description="`frames` over `duration`.")
    frames: int | None = Field(None, description="Found in the file, by its packets or by decoding.")
    frames_expected: int | None = Field(None, description="As the file's header claims.")
    frames_lost: int | None = Field(None, description="Tried but undecodable.")
    times_estimated: bool | None = Field(None, description="The file carries no usable timestamps.")
    has_audio: bool | None = None
    audio_codec: str | None = None


class Model(Document):
    """Names the captioner that wrote the caption, from which features, with which options.

    ``members``: of fusion and ensemble, each one's weights; ``weights_sha256`` is then of all of them.
    """

    captioner: str
    weights_sha256: str | None = None
    members: dict[str, str] | None = None
    features: dict[str, Any] | None = None
    options: dict[str, Any] | None = None
    version: str | None = None


class Timings(Document):
    """Holds the seconds spent in each stage; ``total`` is from acceptance to end."""

    queue: float | None = None
    fetch: float | None = None
    decode: float | None = None
    extract: float | None = None
    caption: float | None = None
    total: float | None = None


class JobSegment(Document):
    """Describes one segment of a film, in a line; ``captions.json`` has all that is known of it.

    Times are seconds as players count them: ``media.first_picture`` is when the first frame is shown.
    """

    start: float
    end: float
    representative: float = Field(description="When the frame is shown that stands for the segment.")
    caption: str
    score: float | None = None


class Estimate(Document):
    """Estimates what captioning a video will cost, as a job with ``validate_only`` found out."""

    seconds: float | None = Field(None, description="Of one worker's time; null where nothing is known.")
    frames: int = Field(description="How many frames will be looked at.")
    segments: int | None = Field(None, description="Into how many a film will be cut; null where it is not.")


class Answer(Document):
    """Holds what is known of a video; it grows while its job runs, and is kept in the job's record.

    ``timings`` are then those of the run: ``decode``, ``extract`` and ``caption``.
    """

    media: Media | None = None
    sampled: list[float] | None = Field(None, description="Seconds of the frames that were used.")
    warnings: list[Note] = Field(default_factory=list)
    caption: str | None = None
    captions: list[ScoredCaption] | None = None
    segments: list[JobSegment] | None = Field(
        None, description="Of a film that is cut: those that are done, in their order."
    )
    model: Model | None = None
    timings: Timings | None = None
    estimate: Estimate | None = Field(None, description="With `validate_only`: what a caption will cost.")

    def joined_with(self, later: Self) -> Self:
        """Adds what has been found since."""
        parts = [part.timings.model_dump(exclude_unset=True) for part in (self, later) if part.timings]
        members = {name: getattr(later, name) for name in later.model_fields_set}
        members["warnings"] = [*self.warnings, *later.warnings]
        timings = Timings(**{name: seconds for part in parts for name, seconds in part.items()})
        return self.model_copy(update={**members, "timings": timings})

    def as_record(self) -> dict[str, Any]:
        """Makes JSON of it, without what is not known yet."""
        return self.model_dump(mode="json", exclude_unset=True)


class JobProgress(Document):
    """Describes how far a job is."""

    id: str
    state: State
    stage: Stage | None = None
    progress: float = Field(0, ge=0, le=1)
    created_at: str | None = Field(None, description="RFC 3339, UTC.")
    started_at: str | None = None
    ended_at: str | None = None
    attempt: int = 0
    filename: str | None = Field(None, description="The file's name on its sender's disk, fit for display.")


class JobUrls(Document):
    """Names what to ask next: ``cancel`` with DELETE, ``recaption`` with POST, the others with GET."""

    self: str
    web: str = Field(description="The job's place on the page, for people.")
    attention: str | None = Field(description="Null where there is none, or none yet.")
    attention_png: str | None = Field(description="The same as a picture; null where there is none.")
    captions_vtt: str | None = Field(description="Subtitles; null where there are none yet.")
    video: str | None = Field(
        description="The file that was sent; null where it is not kept, or not there yet."
    )
    events: str
    recaption: str | None = Field(
        description="Null where the job failed, is canceled or expired: its video is gone."
    )
    cancel: str


class JobDocument(Answer, JobProgress):
    """Describes one job, as ``GET /jobs/{id}`` answers."""

    error: Fault | None = None
    metadata: dict[str, Any] | None = Field(None, description="As it was sent with the job.")
    priority: Priority | None = Field(None, description="The queue that it waited in.")
    source_url: str | None = Field(None, description="Where the video was fetched; null: it was uploaded.")
    validate_only: bool = Field(False, description="No caption was asked for.")
    webhook: str | None = Field(None, description="Host of the address that is told of the job's end.")
    batch: str | None = Field(None, description="The batch that it belongs to.")
    recaption_of: str | None = Field(None, description="The job whose video is captioned again.")
    place: int | None = Field(None, description="In the queue: 1 is taken next. Null once it does not wait.")
    estimated_seconds: float | None = Field(None, description="Until it starts. Null where nothing is known.")
    workers: int | None = Field(
        None, description="Live workers that can run it. Null once it is over; with 0 it waits for one."
    )
    urls: JobUrls | None = None


class FileDocument(JobDocument):
    """Describes a file captioned by the command line: a job's members without an id, and the file's path."""

    id: str | None = None  # type: ignore[assignment]
    file: str


class Accepted(Document):
    """Answers an upload."""

    id: str
    state: State
    urls: JobUrls


def document_of(job: Job, blobs: Blobs, position: QueuePosition | None = None, root: str = "") -> JobDocument:
    """Makes a job's document; what is not known (yet) is null. Raises RecordUnreadable.

    Args:
        blobs: where the parts of its answer lie that outgrow Redis.
        position: where it stands in the queue; its document has no place without.
        root: address that those in it begin with, or a path.
    """
    try:
        document = _document(job, _answer(job, blobs), position or QueuePosition())
        return document.model_copy(update={"urls": urls_of(job, blobs, root)})
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise RecordUnreadable(f"The answer of job {job.id} cannot be read: {reason}.") from error


def urls_of(job: Job, blobs: Blobs, root: str) -> JobUrls:
    """Names what to ask next of a job.

    Args:
        blobs: asked for its video where nothing else says that it is there.
        root: address that they begin with, or a path.
    """
    path = f"{root}/jobs/{job.id}"
    is_kept = job.state not in WITHOUT_VIDEO
    is_captioned = job.state == "succeeded" and not job.submission.validate_only
    has_attention = is_captioned and job.options.attention
    is_uploading = job.submission.source_url is None and not job.is_over
    return JobUrls(
        self=path,
        web=f"{root.removesuffix('/v1')}/f/{job.id}",
        attention=f"{path}/attention" if has_attention else None,
        attention_png=f"{path}/attention.png" if has_attention else None,
        captions_vtt=f"{path}/captions.vtt" if is_captioned else None,
        video=f"{path}/video" if is_uploading or (is_kept and blobs.exists(job.upload)) else None,
        events=f"{path}/events",
        recaption=f"{path}/recaption" if is_kept else None,
        cancel=path,
    )


def _document(job: Job, answer: Mapping[str, Any], position: QueuePosition) -> JobDocument:
    submission = job.submission
    shown = ("metadata", "source_url", "validate_only", "batch", "recaption_of")
    return JobDocument.model_validate(
        {
            **progress_of(job),
            **{name: answer[name] for name in Answer.model_fields if answer.get(name) is not None},
            "timings": job.timings,
            "error": job.error,
            "priority": job.priority,
            **{name: getattr(submission, name) for name in shown},
            "webhook": None if submission.webhook is None else urlsplit(submission.webhook).hostname,
            **vars(position),
        }
    )


def progress_of(job: Job) -> dict[str, Any]:
    """Makes the members of JobProgress."""
    members = {name: getattr(job, name) for name in ("id", "state", "stage", "progress", "attempt")}
    times = {name: rfc3339(getattr(job, name)) for name in ("created_at", "started_at", "ended_at")}
    return {**members, **times, "filename": job.filename or None}


def rfc3339(seconds: float | None) -> str | None:
    """Writes seconds since 1970 as ``2026-11-28T05:40:21.123Z``."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _answer(job: Job, blobs: Blobs) -> Mapping[str, Any]:
    """Reads the answer, with those of its parts that the record only names because they outgrow Redis."""
    answer = _whole_answer(job, blobs)
    kept = _kept_in(job, answer, blobs)
    segments = None if kept is None else _lines_of(kept.read(blobs), answer)
    return {**answer, "segments": segments}


def segment_lines(job: Job, blobs: Blobs, numbers: range) -> list[JobSegment]:
    """Reads some of a job's segments; fewer where they are kept no more.

    Args:
        numbers: which, counted from 0.
    """
    kept = kept_segments(job, blobs) if numbers else None
    segments = [] if kept is None else kept.read(blobs, numbers.start)
    lines = _lines_of(segments[: len(numbers)], _whole_answer(job, blobs))
    return [JobSegment.model_validate(line) for line in lines]


def _whole_answer(job: Job, blobs: Blobs) -> Mapping[str, Any]:
    """Reads the answer from the record, or from the blob that the record names."""
    key = job.answer.get("blob")
    if key is None:
        return job.answer
    try:
        whole: dict[str, Any] = json.loads(blobs.read(key))
    except BlobMissingError:
        return job.answer
    return whole


def kept_segments(job: Job, blobs: Blobs) -> KeptSegments | None:
    """Finds a job's segments; None where it has none, is canceled or expired. Of a failed one they stay."""
    return _kept_in(job, _whole_answer(job, blobs), blobs)


def _kept_in(job: Job, answer: Mapping[str, Any], blobs: Blobs) -> KeptSegments | None:
    if "segments" not in answer or job.state in ("canceled", "expired"):
        return None
    kept = kept_by(answer)
    if kept is None or job.state != "failed":
        return kept
    left = kept.at_the_end(blobs)
    return left if left.done else None


def _lines_of(segments: Sequence[Mapping[str, Any]], answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Makes lines of what is kept, which counts from the first shown frame, on the clock of players."""
    zero, lines = (answer.get("media") or {}).get("first_picture") or 0.0, []
    for segment in segments:
        score = next((caption["score"] for caption in segment["captions"]), None)
        times = {name: round(float(segment[name]) + zero, 4) for name in ("start", "end", "representative")}
        lines.append({**times, "caption": segment["caption"], "score": score})
    return lines
