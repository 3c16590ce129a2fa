"""A job is one Redis hash, and that hash is the only truth about it.

    queued → running → succeeded | failed | canceled        each of these → expired
       ↑________|  handed back, or its worker fell silent

Four Lua scripts are all that writes the record: submit, claim, beat, finish. Each is one step for everybody
else, runs on the server's clock, and may be called twice with the same arguments. A claim carries a fencing
token that only grows: whoever comes late with an old one changes nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import redis
import structlog

from app.errors import NotOnDisk
from app.named_error import NamedError, error_document
from app.options import CaptionOptions
from app.redis_client import unavailable_if_away
from app.settings import Settings
from app.states import Priority, Stage, State

Pulse = Literal["go", "canceled", "lost"]
Ending = Literal["done", "asked", "over", "lost"]

GROUP = "workers"
ANSWER_LIMIT = 64 * 1024  #: bytes of an answer that Redis holds; a larger one is a blob
DISK_PATIENCE_MS = 2000

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
    def expiry(self) -> str:
        return f"{self.namespace}:expiry"


@dataclass(frozen=True)
class Job:
    """A job as it stood when it was read. Times are seconds since 1970 on Redis's clock.

    answer: what is known of the result (media, sampled, warnings, captions, model, timings); it grows
    while the job runs. error: code, message and hint of a failed job.
    """

    id: str
    state: State
    priority: Priority
    options: CaptionOptions
    upload: str
    filename: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    stage: Stage | None
    progress: float
    attempt: int
    answer: Mapping[str, Any]
    error: Mapping[str, str] | None
    cancel_requested: bool
    entry: str

    @property
    def is_over(self) -> bool:
        return self.state not in ("queued", "running")

    @property
    def timings(self) -> dict[str, float | None]:
        """Seconds in the queue, in each stage of the run that counted, and from acceptance to end."""
        queue = None if self.started_at is None else round(self.started_at - self.created_at, 4)
        total = None if self.ended_at is None else round(self.ended_at - self.created_at, 4)
        return {"queue": queue, **self.answer.get("timings", {}), "total": total}

    @classmethod
    def from_record(cls, record: Mapping[str, str]) -> Job:
        return cls(
            id=record["id"],
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
        )


@dataclass(frozen=True)
class Claim:
    """The right to run one attempt of a job, good while it is beaten and nobody has a newer token."""

    job: Job
    token: str
    worker: str
    is_shared: bool


@dataclass(frozen=True)
class Refusal:
    """Why a job on offer is not to be run; ``over``, ``canceled`` and ``exhausted`` leave nothing to run."""

    job_id: str
    reason: Literal["busy", "over", "canceled", "exhausted"]


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
        self._submit, self._claim, self._beat, self._finish = (
            server.register_script(_script(name)) for name in ("submit", "claim", "beat", "finish")
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
            "options": options.model_dump_json(),
            "upload": upload,
            "filename": filename,
            "priority": priority,
        }
        arguments = [job_id, *(part for pair in fields.items() for part in pair)]
        with unavailable_if_away(), self.server.pipeline(transaction=False) as pipe:
            self._submit(
                keys=[self.keys.job(job_id), self.keys.stream(priority)], args=arguments, client=pipe
            )
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
        """The job, or None where there is none of that id. Raises QueueUnavailable."""
        with unavailable_if_away():
            record: Any = self.server.hgetall(self.keys.job(job_id))
        return Job.from_record(record) if record else None

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
        cause: NamedError,
        is_shared: bool = False,
        held: Claim | None = None,
    ) -> Claim | Refusal:
        """Takes a job for one attempt.

        cause: recorded where no attempt is left. is_shared: it will run in a batch with others.
        held: the claim of a holder that starts the job anew after a crash.
        """
        nonce = uuid.uuid4().hex
        with unavailable_if_away():
            answer: list[str] = self._claim(
                keys=[self.keys.job(job_id), self.keys.stream(priority), self.keys.expiry],
                args=[
                    GROUP, worker, entry, job_id, self._lease_ms, self.attempts, nonce, int(is_shared),
                    held.token if held else "", _error_json(cause), self._result_ttl,
                ],
            )  # fmt: skip
        if answer[0] != "claimed":
            return Refusal(job_id, answer[0])  # type: ignore[arg-type]
        record = dict(zip(answer[1::2], answer[2::2], strict=True))
        return Claim(Job.from_record(record), record["token"], worker, is_shared)

    def claim_again(self, held: Claim, cause: NamedError) -> Claim | Refusal:
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
                keys=[self.keys.job(job.id), self.keys.stream(job.priority)],
                args=[
                    GROUP, claim.worker, claim.token, self._lease_ms, stage, round(progress, 4),
                    json.dumps(answer) if answer else "",
                ],
            )  # fmt: skip
        return pulse

    def succeed(self, claim: Claim, answer: Mapping[str, Any]) -> bool:
        """Writes the answer; False where the claim was lost and nothing is written."""
        return self._end(claim.job, claim.token, "succeeded", answer) == "done"

    def fail(self, claim: Claim, error: NamedError, answer: Mapping[str, Any] | None = None) -> bool:
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
        job = self.get(job_id)
        if job is None:
            self.server.zrem(self.keys.expiry, job_id)
            return False
        return self._end(job, "", "expired") == "done"

    def due(self, limit: int = 100) -> list[str]:
        """Ids of jobs whose results have been kept long enough."""
        with unavailable_if_away():
            now = self.server.time()[0]
            ids: Any = self.server.zrange(self.keys.expiry, "-inf", now, byscore=True, offset=0, num=limit)
        return list(ids)

    def _end(
        self, job: Job, token: str, state: State, answer: Mapping[str, Any] | None = None, reason: str = ""
    ) -> Ending:
        text = json.dumps(answer) if answer else ""
        if len(text) > ANSWER_LIMIT:
            raise ValueError(f"an answer of {len(text)} bytes belongs into a blob")
        with unavailable_if_away():
            ending: Ending = self._finish(
                keys=[self.keys.job(job.id), self.keys.stream(job.priority), self.keys.expiry],
                args=[GROUP, job.id, token, state, text, reason, self._result_ttl, self._lease_ms],
            )
        return ending

    @property
    def _lease_ms(self) -> int:
        return round(self.lease * 1000)


def _error_json(error: NamedError) -> str:
    return json.dumps(error_document(error))


def _seconds(text: str | None) -> float | None:
    return None if text is None else float(text)


def _script(name: str) -> str:
    return (Path(__file__).parent / "lua" / f"{name}.lua").read_text()
