"""Reads the record of a job: one Redis hash, the only truth about it.

    queued → running → succeeded | failed | canceled        each of these → expired
       ↑________|  handed back, or its worker fell silent

app/jobs/job_store.py writes it, through Lua scripts alone. A record that this version cannot read becomes a
dead letter (app/jobs/dead_letters.py) and harms no other job.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, FiniteFloat, ValidationError
from pydantic.dataclasses import dataclass as validated

from app.errors import RecordUnreadable
from app.jobs.options import CaptionOptions

State = Literal["queued", "running", "succeeded", "failed", "canceled", "expired"]
Stage = Literal["fetch", "decode", "extract", "caption"]
Priority = Literal["high", "normal", "low"]
WebhookEvent = Literal["started", "segment", "ended"]

STATES: tuple[State, ...] = get_args(State)
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
GROUP = "workers"  #: the consumer group of every stream
RECORD_VERSION = 2  #: to be raised where an older version would misread a record
PLAIN_VERSION = 1  #: of records that the version before reads as well
LATEST = 253402300799.0  #: the last second of the year 9999
#: Fields of every record that a job has as they are.
ALWAYS_THERE = (
    "id", "state", "priority", "upload", "filename", "created_at", "progress", "attempt", "entry",
)  # fmt: skip


class Keys:
    """Names everything in Redis; ``namespace`` lets two services share a server.

    lua/common.lua knows ``index``, ``counts`` and ``wake``, and lua/finish.lua ``vanishing`` and
    ``forgotten``, by the clock's name.
    """

    def __init__(self, namespace: str = "reelword") -> None:
        self.namespace = namespace
        self.clock = f"{namespace}:clock"
        self.wake = f"{namespace}:wake"  #: tokens, each of which wakes a worker that waits
        self.workers = f"{namespace}:workers"
        #: Those that take jobs, by when their advertisements lapse; lua/advertise.lua writes it.
        self.ready_workers = f"{self.workers}:ready"
        self.dead = f"{namespace}:dead"
        self.index = f"{namespace}:index"  #: the sorted set of all jobs
        self.counts = f"{namespace}:counts"  #: of what has happened, for ``/metrics``
        self.recent_runs = f"{namespace}:runs"
        self.ended = f"{namespace}:ended"
        self.expiry = f"{namespace}:expiry"
        self.vanishing = f"{namespace}:vanishing"  #: the expired jobs by when their records are gone
        self.forgotten = f"{namespace}:forgotten"  #: files whose features are to go, by since when
        self.held_uploads = f"{namespace}:held"
        self.deliveries = f"{namespace}:deliveries"
        self.api_keys = f"{namespace}:keys"
        self.rates = f"{namespace}:rate"
        self.searches = f"{namespace}:searches"  #: the list of those that no worker has taken

    def job(self, job_id: str) -> str:
        return f"{self.namespace}:job:{job_id}"

    def stream(self, priority: Priority) -> str:
        return f"{self.namespace}:queue:{priority}"

    def events(self, job_id: str) -> str:
        return f"{self.namespace}:events:{job_id}"

    def worker(self, name: str) -> str:
        return f"{self.namespace}:worker:{name}"

    def idempotency(self, digest: str) -> str:
        return f"{self.namespace}:idempotency:{digest}"

    def batch(self, batch_id: str) -> str:
        return f"{self.namespace}:batch:{batch_id}"

    def batch_jobs(self, batch_id: str) -> str:
        return f"{self.batch(batch_id)}:jobs"

    def delivery(self, job_id: str) -> str:
        return f"{self.namespace}:delivery:{job_id}"

    def delivery_attempts(self, job_id: str) -> str:
        return f"{self.namespace}:attempts:{job_id}"

    def session(self, digest: str) -> str:
        return f"{self.namespace}:session:{digest}"

    def sessions_of(self, key_id: str) -> str:
        """Names the list of a key's sessions, the newest first."""
        return f"{self.namespace}:sessions:{key_id}"

    def search_answer(self, search_id: str) -> str:
        return f"{self.searches}:{search_id}"

    def active(self, owner: str) -> str:
        """Names the set of an owner's jobs that were not over at the last look."""
        return f"{self.namespace}:active:{owner}"


Moment = Annotated[FiniteFloat, Field(ge=0, le=LATEST)]


class JobLimits(BaseModel, frozen=True, extra="ignore"):
    """Holds what a video may be at most by its sender's key; the worker looks once it is opened."""

    seconds: float | None = Field(None, gt=0, description="How long the video may last.")
    pixels: int | None = Field(None, gt=0, description="How many pixels a frame may have.")
    upload_bytes: int | None = Field(None, gt=0, description="How large a video may be that is fetched.")
    concurrent: int | None = Field(None, gt=0, description="How many jobs of its owner may not be over.")


class Submission(BaseModel, frozen=True, extra="ignore"):
    """Holds what is sent with a job beside its options; it comes from the request and never changes.

    Kept in the record without what is not set, so that older records and workers do without it.
    """

    metadata: dict[str, Any] | None = Field(None, description="A small JSON object of the client's own.")
    source_url: str | None = Field(None, description="Where the worker fetches the video; None: uploaded.")
    sha256: str | None = Field(None, description="Of the uploaded file's bytes.")
    validate_only: bool = Field(False, description="Read the file and estimate, and write no caption.")
    owner: str | None = Field(None, description="Id of the API key that sent it.")
    batch: str | None = Field(None, description="Id of the batch that it belongs to.")
    webhook: str | None = Field(None, description="Address that is told of the job's events.")
    webhook_events_filter: list[WebhookEvent] | None = Field(
        None, description="Events that it is told of; None: the end alone."
    )
    limits: JobLimits | None = Field(None, description="What the video may be at most, by its sender's key.")
    recaption_of: str | None = Field(None, description="Id of the job whose film is captioned again.")
    traceparent: str | None = Field(None, description="Span that sent it, as W3C's Trace Context has it.")

    @property
    def record_version(self) -> int:
        """Returns the version that a record must have: others would miss the file, or write a caption."""
        return RECORD_VERSION if self.source_url or self.validate_only else PLAIN_VERSION


@validated(frozen=True)
class Job:
    """Holds a job as it stood when it was read. Times are seconds since 1970 on Redis's clock."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    state: State
    priority: Priority
    options: CaptionOptions
    upload: Annotated[str, Field(pattern=r"^uploads/[A-Za-z0-9_-]{1,64}$")]
    filename: str
    created_at: Moment
    started_at: Moment | None
    ended_at: Moment | None
    stage: Stage | None
    progress: Annotated[float, Field(ge=0, le=1)]
    attempt: Annotated[int, Field(ge=0, le=10**6)]  #: counts those begun
    #: What is known of the result (media, sampled, warnings, captions, model, timings); grows while it runs.
    answer: Mapping[str, Any]
    error: Mapping[str, str] | None  #: code, message and hint of a failed job
    cancel_requested: bool
    entry: Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]  #: of the stream that it waits in
    #: Token of the claim that succeeded.
    results_of: Annotated[str, Field(pattern=r"^\d{1,20}$")] | None = None
    #: Seconds from acceptance to the first start, which no setting of a clock changes.
    waited: Annotated[FiniteFloat, Field(ge=0)] | None = None
    took: Annotated[FiniteFloat, Field(ge=0)] | None = None  #: seconds from acceptance to the end, likewise
    submission: Submission = Submission()
    worker: str | None = None  #: that took it last
    sha256: str | None = None  #: of its file, where features of it were kept, or it was uploaded

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def results(self) -> str:
        """Names the key that its results lie below in the blobs; of older versions without a token."""
        folder = f"results/{self.id}"
        return folder if self.results_of is None else f"{folder}/{self.results_of}"

    @property
    def timings(self) -> dict[str, float | None]:
        """Lists seconds in the queue, in each stage of the run that counted, and from acceptance to end."""
        return {"queue": self.waited, **self.answer.get("timings", {}), "total": self.took}

    @classmethod
    def from_record(cls, job_id: str, record: Mapping[str, str]) -> Self:
        """Reads a record. Raises RecordUnreadable, with what this version cannot read of it."""
        try:
            _check(record, job_id)
            submission = Submission.model_validate_json(record.get("submission") or "{}")
            members: dict[str, Any] = {name: record[name] for name in ALWAYS_THERE}
            return cls(
                **members | {name: record.get(name) for name in ("started_at", "ended_at", "stage")},
                options=CaptionOptions.model_validate_json(record["options"]),
                answer=json.loads(record.get("answer") or "{}"),
                error=json.loads(record.get("error") or "null"),
                cancel_requested="cancel" in record,
                results_of=record.get("results"),
                waited=_duration(record, "started"),
                took=_duration(record, "ended"),
                submission=submission,
                sha256=record.get("sha256") or submission.sha256,
                worker=record.get("last_worker") or record.get("worker"),
            )
        except (ValueError, RecursionError) as error:
            raise RecordUnreadable(
                f"The record of job {job_id[:64]} cannot be read: {_said(error)}."
            ) from error
        except KeyError as error:
            raise RecordUnreadable(f"The record of job {job_id[:64]} lacks {error.args[0]}.") from error


def _check(record: Mapping[str, str], job_id: str) -> None:
    """Checks version and id; records without a version are of before there were any. Raises ValueError."""
    version = int(record.get("version", "1"))
    if not 1 <= version <= RECORD_VERSION:
        raise ValueError(f"it is of version {version}, and this program reads up to {RECORD_VERSION}")
    int(record["token"])
    if record["id"] != job_id:
        raise ValueError(f"it says that it is job {record['id'][:64]}")


def _duration(record: Mapping[str, str], event: str) -> float | None:
    """Reads the seconds from acceptance to an event; by the server's clock in records without another."""
    if f"{event}_at" not in record:
        return None
    if f"{event}_ms" in record and "created_ms" in record:
        return max(0.0, round((float(record[f"{event}_ms"]) - float(record["created_ms"])) / 1000, 4))
    return max(0.0, round(float(record[f"{event}_at"]) - float(record["created_at"]), 4))


def _said(error: BaseException) -> str:
    """Returns the first thing that is wrong, in few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'options'}: {first['msg']}"
    return str(error)[:200]


@dataclass(frozen=True)
class QueuePosition:
    """Holds where a job stands."""

    place: int | None = None  #: 1 is taken next; None where it does not wait
    #: Until it starts; None where nothing is known of how long jobs take, or no worker lives.
    estimated_seconds: float | None = None
    workers: int | None = None  #: those that live and can run it; None of a job that is over
