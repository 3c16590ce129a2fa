"""A job is one Redis hash, and that hash is the only truth about it.

    queued → running → succeeded | failed | canceled        each of these → expired
       ↑________|  handed back, or its worker fell silent

Lua scripts are all that writes the record: submit, claim, beat, finish; take, bury and requeue where an entry
changes hands. Each is one step for everybody else and may be called twice with the same arguments. Leases and
durations go by a clock of our own (lua/common.lua) that never goes back, whatever the server's does. A claim
carries a fencing token that only grows: whoever comes late with an old one changes nothing. A record that
this version cannot read becomes a dead letter (app/jobs/dead_letters.py) and harms no other job.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import redis
import structlog
from pydantic import Field, FiniteFloat, ValidationError
from pydantic.dataclasses import dataclass as validated

from app.errors import NotOnDisk, RecordUnreadable
from app.jobs.dead_letters import DeadLetter, DeadLetters, letter_text
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import LuaScript, unavailable_if_away
from app.settings import Settings
from extractors.errors import ReelwordError

# The words for where a job stands. Nothing is imported here, so that the engine's process starts quickly.


State = Literal["queued", "running", "succeeded", "failed", "canceled", "expired"]
Stage = Literal["decode", "extract", "caption"]
Priority = Literal["high", "normal", "low"]

PRIORITIES: tuple[Priority, ...] = get_args(Priority)

Pulse = Literal["go", "canceled", "lost"]
Ending = Literal["done", "asked", "over", "lost"]

GROUP = "workers"
ANSWER_LIMIT = 64 * 1024  #: bytes of an answer that Redis holds; a larger one is a blob
DISK_PATIENCE_MS = 2000
RECORD_VERSION = 1  #: to be raised where an older version would misread a record
LATEST = 253402300799.0  #: the last second of the year 9999

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Keys:
    """Names of everything in Redis; ``namespace`` lets two services share a server."""

    namespace: str = "reelword"

    def job(self, job_id: str) -> str:
        return f"{self.namespace}:job:{job_id}"

    def stream(self, priority: Priority) -> str:
        return f"{self.namespace}:queue:{priority}"

    def worker(self, name: str) -> str:
        return f"{self.namespace}:worker:{name}"

    @property
    def workers(self) -> str:
        return f"{self.namespace}:workers"

    @property
    def clock(self) -> str:
        return f"{self.namespace}:clock"

    @property
    def dead(self) -> str:
        return f"{self.namespace}:dead"

    @property
    def expiry(self) -> str:
        return f"{self.namespace}:expiry"


Moment = Annotated[FiniteFloat, Field(ge=0, le=LATEST)]


@validated(frozen=True)
class Job:
    """A job as it stood when it was read. Times are seconds since 1970 on Redis's clock.

    waited, took: seconds from acceptance to the first start and to the end, which no setting of a clock
    changes. answer: what is known of the result (media, sampled, warnings, captions, model, timings); it
    grows while the job runs. error: code, message and hint of a failed job.
    """

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
    attempt: Annotated[int, Field(ge=0, le=10**6)]
    answer: Mapping[str, Any]
    error: Mapping[str, str] | None
    cancel_requested: bool
    entry: Annotated[str, Field(pattern=r"^\d{1,20}-\d{1,20}$")]
    waited: Annotated[FiniteFloat, Field(ge=0)] | None = None
    took: Annotated[FiniteFloat, Field(ge=0)] | None = None

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def timings(self) -> dict[str, float | None]:
        """Seconds in the queue, in each stage of the run that counted, and from acceptance to end."""
        return {"queue": self.waited, **self.answer.get("timings", {}), "total": self.took}

    @classmethod
    def from_record(cls, job_id: str, record: Mapping[str, str]) -> Job:
        """Raises RecordUnreadable, which says what this version cannot read of it."""
        try:
            _check_version(record)
            return cls(
                id=_own(record["id"], job_id),
                state=record["state"],  # type: ignore[arg-type]
                priority=record["priority"],  # type: ignore[arg-type]
                options=CaptionOptions.model_validate_json(record["options"]),
                upload=record["upload"],
                filename=record["filename"],
                created_at=float(record["created_at"]),
                started_at=_seconds(record.get("started_at")),
                ended_at=_seconds(record.get("ended_at")),
                stage=record.get("stage"),  # type: ignore[arg-type]
                progress=float(record["progress"]),
                attempt=int(record["attempt"]),
                answer=json.loads(record.get("answer") or "{}"),
                error=json.loads(record.get("error") or "null"),
                cancel_requested="cancel" in record,
                entry=record["entry"],
                waited=_duration(record, "started"),
                took=_duration(record, "ended"),
            )
        except (ValueError, RecursionError) as error:
            raise RecordUnreadable(
                f"The record of job {job_id[:64]} cannot be read: {_said(error)}."
            ) from error
        except KeyError as error:
            raise RecordUnreadable(f"The record of job {job_id[:64]} lacks {error.args[0]}.") from error


@dataclass(frozen=True)
class Claim:
    """The right to run one attempt of a job, good while it is beaten and nobody has a newer token."""

    job: Job
    token: str
    worker: str
    is_shared: bool


@dataclass(frozen=True)
class Refusal:
    """Why a job on offer is not to be run; ``over``, ``canceled`` and ``exhausted`` leave nothing to run, and
    what is ``unreadable`` has become a dead letter."""

    job_id: str
    reason: Literal["busy", "over", "canceled", "exhausted", "unreadable"]


class Jobs:
    """Reads and writes jobs. Safe to share between threads.

    attempts: how many a job has. lease, result_ttl: seconds.
    """

    def __init__(
        self,
        server: redis.Redis,
        *,
        attempts: int,
        lease: float,
        result_ttl: float,
        keys: Keys | None = None,
    ) -> None:
        self.server, self.keys = server, keys or Keys()
        self.attempts, self.lease, self._result_ttl = attempts, lease, result_ttl
        self._is_warned = False
        self.dead = DeadLetters(server, self.keys.dead)
        self._submit, self._claim, self._beat, self._finish, self._bury, self._requeue = (
            LuaScript(server, name) for name in ("submit", "claim", "beat", "finish", "bury", "requeue")
        )

    @classmethod
    def from_settings(cls, server: redis.Redis, settings: Settings) -> Jobs:
        return cls(
            server,
            attempts=settings.attempts,
            lease=settings.lease_seconds,
            result_ttl=settings.result_ttl,
            keys=Keys(settings.namespace),
        )

    def submit(
        self,
        job_id: str,
        options: CaptionOptions,
        upload: str,
        *,
        filename: str = "",
        priority: Priority = "normal",
    ) -> Job:
        """Accepts a job whose file is the blob ``upload``. It is on Redis's disk when this returns.

        Raises QueueUnavailable; NotOnDisk where the disk takes longer than two seconds (the job is then
        withdrawn).
        """
        fields = {
            "version": str(RECORD_VERSION),
            "options": options.model_dump_json(),
            "upload": upload,
            "filename": filename,
            "priority": priority,
        }
        arguments: list[str | int] = [
            job_id,
            self._lease_ms,
            *(part for pair in fields.items() for part in pair),
        ]
        keys = [self.keys.job(job_id), self.keys.stream(priority), *self._shared_keys]
        with unavailable_if_away(), self.server.pipeline(transaction=False) as pipe:
            # By its text: a pipeline cannot be told to load a script that the server has forgotten.
            pipe.eval(self._submit.text, len(keys), *keys, *arguments)
            pipe.waitaof(1, 0, DISK_PATIENCE_MS)
            created, flushed = pipe.execute(raise_on_error=False)
        if isinstance(created, redis.RedisError):  # its memory or its disk is full
            raise NotOnDisk(f"Redis takes no more jobs ({created}).") from created
        self._check_flushed(job_id, flushed)
        job = self.get(job_id)
        assert job is not None
        return job

    def _check_flushed(self, job_id: str, flushed: Any) -> None:
        if isinstance(flushed, redis.ResponseError):  # no append-only file, or a server before 7.2
            if not self._is_warned:
                log.warning("redis does not keep jobs on disk", reason=str(flushed))
            self._is_warned = True
        elif isinstance(flushed, Exception) or flushed[0] < 1:
            self.cancel(job_id)
            raise NotOnDisk("Redis did not write the job to disk within two seconds.")

    def get(self, job_id: str) -> Job | None:
        """The job, or None where there is none of that id. Raises QueueUnavailable, RecordUnreadable."""
        try:
            with unavailable_if_away():
                record: Any = self.server.hgetall(self.keys.job(job_id))
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise RecordUnreadable(f"The key of job {job_id[:64]} holds no record.") from error
        return Job.from_record(job_id, record) if record else None

    def cancel(self, job_id: str) -> Ending:
        """``done``: it waited and is canceled. ``asked``: its worker will stop it. ``lost``: no such job."""
        job = self.get(job_id)
        return "lost" if job is None else self._end(job, "", "canceled")

    def claim(
        self,
        job_id: str,
        entry: str,
        priority: Priority,
        worker: str,
        *,
        cause: ReelwordError,
        is_shared: bool = False,
        held: Claim | None = None,
    ) -> Claim | Refusal:
        """Takes a job for one attempt.

        cause: recorded where no attempt is left. is_shared: it will run in a batch with others.
        held: the claim of a holder that starts the job anew after a crash. What cannot be read becomes a
        dead letter.
        """
        try:
            self.get(job_id)  # before an attempt is counted
        except RecordUnreadable as error:
            self.bury(job_id, entry, priority, str(error))
            return Refusal(job_id, "unreadable")
        nonce = uuid.uuid4().hex
        with unavailable_if_away():
            answer: list[str] = self._claim(
                keys=self._keys_of(job_id, priority),
                args=[
                    GROUP, worker, entry, job_id, self._lease_ms, self.attempts, nonce, int(is_shared),
                    held.token if held else "", _error_json(cause), self._result_ttl,
                ],
            )  # fmt: skip
        if answer[0] != "claimed":
            return Refusal(job_id, answer[0])  # type: ignore[arg-type]
        record = dict(zip(answer[1::2], answer[2::2], strict=True))
        return Claim(Job.from_record(job_id, record), record["token"], worker, is_shared)

    def claim_again(self, held: Claim, cause: ReelwordError) -> Claim | Refusal:
        """The next attempt at once, alone, by the holder of the last one (whose child died of it)."""
        job = held.job
        return self.claim(job.id, job.entry, job.priority, held.worker, cause=cause, held=held)

    def beat(
        self, claim: Claim, stage: Stage, progress: float, answer: Mapping[str, Any] | None = None
    ) -> Pulse:
        """Renews the lease; ``canceled`` and ``lost`` mean: stop. ``answer``: what is known so far."""
        job = claim.job
        with unavailable_if_away():
            pulse: Pulse = self._beat(
                keys=[self.keys.job(job.id), self.keys.stream(job.priority), *self._shared_keys],
                args=[
                    GROUP, claim.worker, claim.token, self._lease_ms, stage, round(progress, 4),
                    json.dumps(answer) if answer else "",
                ],
            )  # fmt: skip
        return pulse

    def succeed(self, claim: Claim, answer: Mapping[str, Any]) -> bool:
        """Writes the answer; False where the claim was lost and nothing is written."""
        return self._end(claim.job, claim.token, "succeeded", answer) == "done"

    def fail(self, claim: Claim, error: ReelwordError, answer: Mapping[str, Any] | None = None) -> bool:
        """Ends the job with code, message and hint; False where the claim was lost."""
        return self._end(claim.job, claim.token, "failed", answer, _error_json(error)) == "done"

    def stop(self, claim: Claim) -> bool:
        """Ends a running job whose cancellation was asked for."""
        return self._end(claim.job, claim.token, "canceled") == "done"

    def hand_back(self, claim: Claim) -> bool:
        """Puts a running job back, first in line, its attempt not counted: its worker has to leave."""
        return self._end(claim.job, claim.token, "queued") == "done"

    def expire(self, job_id: str) -> bool:
        """Forgets the result of a job that is over; the record itself stays as long again."""
        is_done = self._finish_script(job_id, "normal", "", "expired") == "done"  # whatever its priority
        if not is_done:
            with unavailable_if_away():
                self.server.zrem(self.keys.expiry, job_id)
        return is_done

    def due(self, limit: int = 100) -> list[str]:
        """Ids of jobs whose results have been kept long enough."""
        with unavailable_if_away():
            if self.server.type(self.keys.expiry) != "zset":  # the next job that ends makes it anew
                return []
            now = self.server.time()[0]
            ids: Any = self.server.zrange(self.keys.expiry, "-inf", now, byscore=True, offset=0, num=limit)
        return list(ids)

    def bury(
        self,
        job_id: str,
        entry: str,
        priority: Priority,
        reason: str,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Takes an entry that cannot be read out of the queue and leaves a dead letter.

        job_id: empty where the entry names none; fields are then what it has.
        """
        letter = DeadLetter(
            name=job_id or entry,
            kind="job" if job_id else "entry",
            key=self.keys.job(job_id) if job_id else self.keys.stream(priority),
            reason=reason,
            at=time.time(),
            fields=dict(fields or {}),
        )
        with unavailable_if_away():
            self._bury(
                keys=[self.keys.job(job_id), self.keys.stream(priority), *self._shared_keys],
                args=[GROUP, entry, letter.name, letter_text(letter)],
            )
        log.error("dead letter", letter=letter.name, reason=reason)

    def requeue(self, letter: DeadLetter) -> None:
        """Puts the job of a dead letter into its queue again. Raises RecordUnreadable where this version
        cannot read it either, or there is no job to run."""
        job = self.get(letter.name) if letter.kind == "job" else None
        if job is None:
            raise RecordUnreadable(f"{letter.name} names no job that could run ({letter.reason})")
        if job.is_over:
            raise RecordUnreadable(f"Job {job.id} has {job.state} already.")
        with unavailable_if_away():
            self._requeue(
                keys=[self.keys.job(job.id), self.keys.stream(job.priority), *self._shared_keys],
                args=[job.id],
            )

    def _end(
        self, job: Job, token: str, state: State, answer: Mapping[str, Any] | None = None, reason: str = ""
    ) -> Ending:
        text = json.dumps(answer) if answer else ""
        if len(text) > ANSWER_LIMIT:
            raise ValueError(f"an answer of {len(text)} bytes belongs into a blob")
        return self._finish_script(job.id, job.priority, token, state, text, reason)

    def _finish_script(
        self, job_id: str, priority: Priority, token: str, state: State, text: str = "", reason: str = ""
    ) -> Ending:
        with unavailable_if_away():
            ending: Ending = self._finish(
                keys=[
                    self.keys.job(job_id),
                    self.keys.stream(priority),
                    self.keys.expiry,
                    *self._shared_keys,
                ],
                args=[GROUP, job_id, token, state, text, reason, self._result_ttl, self._lease_ms],
            )
        return ending

    def _keys_of(self, job_id: str, priority: Priority) -> list[str]:
        return [self.keys.job(job_id), self.keys.stream(priority), self.keys.expiry, *self._shared_keys]

    @property
    def _shared_keys(self) -> tuple[str, str]:
        """What every script is given last (lua/common.lua)."""
        return self.keys.clock, self.keys.dead

    @property
    def _lease_ms(self) -> int:
        return round(self.lease * 1000)


def _error_json(error: ReelwordError) -> str:
    return json.dumps(error.document())


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def _check_version(record: Mapping[str, str]) -> None:
    """Records without a version are of before there were any. Raises ValueError."""
    version = int(record.get("version", "1"))
    if not 1 <= version <= RECORD_VERSION:
        raise ValueError(f"it is of version {version}, and this program reads up to {RECORD_VERSION}")
    int(record["token"])


def _own(said: str, job_id: str) -> str:
    if said != job_id:
        raise ValueError(f"it says that it is job {said[:64]}")
    return said


def _duration(record: Mapping[str, str], event: str) -> float | None:
    """Seconds from acceptance to an event; of records of before there was a clock for it by the server's."""
    if f"{event}_at" not in record:
        return None
    if f"{event}_ms" in record and "created_ms" in record:
        return max(0.0, round((float(record[f"{event}_ms"]) - float(record["created_ms"])) / 1000, 4))
    return max(0.0, round(float(record[f"{event}_at"]) - float(record["created_at"]), 4))


def _said(error: BaseException) -> str:
    """The first thing that is wrong, in few words."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc'])) or 'options'}: {first['msg']}"
    return str(error)[:200]
