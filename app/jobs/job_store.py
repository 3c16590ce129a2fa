"""Reads and writes jobs in Redis: submits, claims, renews, ends and expires them.

Lua scripts are all that writes a record: submit, claim, beat, finish; take, bury and requeue where an entry
changes hands. Each is one step for everybody else and may be called twice with the same arguments. Leases and
durations go by a clock of our own (lua/common.lua) that never goes back, whatever the server's does. A claim
carries a fencing token that only grows: a late attempt with an old one changes nothing.
"""

import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import redis
import structlog

from app.errors import NotOnDisk, QueueUnavailable, RecordUnreadable, TooManyJobs
from app.jobs.dead_letters import DeadLetter, DeadLetters, letter_text
from app.jobs.idempotency import LONGEST_QUEUE, KeyTaken, Reservation
from app.jobs.job import GROUP, Job, JobLimits, Keys, Priority, Stage, State, Submission
from app.jobs.job_index import JobIndex
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import LuaScript
from app.settings import Settings
from app.steady_clock import SteadyClock
from extractors.errors import ReelwordError

Pulse = Literal["go", "canceled", "lost"]
Ending = Literal["done", "asked", "over", "lost"]

AT_A_TIME = 500  #: records read in one exchange with Redis
ANSWER_LIMIT = 64 * 1024  #: bytes of an answer that Redis holds; a larger one is a blob
#: What scripts that accept jobs say of an owner with as many as may be, and of a key that another one has.
TOO_MANY, KEY_TAKEN = -1, -2
BATCH_LEFT_SECONDS = 60  #: that a batch is told of once its first jobs are kept no more
DISK_PATIENCE_MS = 2000  #: how long a submission waits for Redis's disk

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Claim:
    """Gives the right to run one attempt, while its lease is renewed and there is no newer token."""

    job: Job
    token: str
    worker: str

    @property
    def results(self) -> str:
        """Names the key below which this attempt's results go: no other attempt writes there."""
        return f"results/{self.job.id}/{self.token}"


@dataclass(frozen=True)
class Refusal:
    """Holds why a job on offer is not to be run.

    ``over``, ``canceled`` and ``exhausted`` leave nothing to run, and what is ``unreadable`` has become a
    dead letter.
    """

    job_id: str
    reason: Literal["busy", "over", "canceled", "exhausted", "unreadable"]


@dataclass(frozen=True)
class NewJob:
    """Holds what is known of a job when it is accepted: as Jobs.submit has it."""

    job_id: str
    options: CaptionOptions
    upload: str
    filename: str
    priority: Priority
    submission: Submission

    def fields(self) -> list[str]:
        """Lists field, value, … of its record, without those that the scripts set."""
        fields = {
            "version": str(self.submission.record_version),
            # without what is not set: workers of the version before know no option that is new
            "options": self.options.model_dump_json(exclude_none=True),
            "upload": self.upload,
            "filename": self.filename,
            "priority": self.priority,
            "submission": self.submission.model_dump_json(exclude_defaults=True),
        }
        return [part for pair in fields.items() for part in pair]


@dataclass(eq=False)
class Jobs:
    """Reads and writes jobs. Safe to share between threads."""

    server: redis.Redis  #: the connection to Redis
    attempts: int  #: how many a job has
    lease: float  #: seconds after which a job runs again whose worker fell silent
    result_ttl: float  #: seconds that a result is kept
    keys: Keys = field(default_factory=Keys)  #: names in Redis
    max_kept: int = 10_000  #: jobs that are kept of one owner

    def __post_init__(self) -> None:
        self._is_warned, self._clock = False, SteadyClock()
        self.dead = DeadLetters(self.server, self.keys.dead)
        self.index = JobIndex(self.server, self.keys)
        self._submit, self._claim, self._beat, self._finish, self._bury, self._requeue = (
            LuaScript(self.server, name) for name in ("submit", "claim", "beat", "finish", "bury", "requeue")
        )

    @classmethod
    def from_settings(cls, server: redis.Redis, settings: Settings) -> Self:
        return cls(
            server,
            attempts=settings.attempts,
            lease=settings.lease_seconds,
            result_ttl=settings.result_ttl,
            keys=Keys(settings.namespace),
            max_kept=settings.max_kept_jobs,
        )

    def submit(
        self,
        job_id: str,
        options: CaptionOptions,
        upload: str,
        *,
        filename: str = "",
        priority: Priority = "normal",
        submission: Submission | None = None,
        reservation: Reservation | None = None,
    ) -> Job:
        """Accepts a job, which is on Redis's disk when this returns.

        Args:
            options: as asked for, with the choice of who writes where it has been made.
            upload: key of the blob that is its file.
            filename: the file's name on its sender's disk, fit for display.
            submission: what else was sent with it.
            reservation: of the idempotency key that stands for this job from now on.

        Raises:
            KeyTaken: it stands for another one already.
            QueueUnavailable: Redis is away.
            NotOnDisk: its disk took longer than two seconds; the job is withdrawn.
            TooManyJobs: as many of its owner as may be are not over yet.
        """
        new = NewJob(job_id, options, upload, filename, priority, submission or Submission())
        arguments: list[str | int] = [
            job_id, self.lease_ms, *self.limit_of(new.submission), *self.key_of(reservation), *new.fields()
        ]  # fmt: skip
        self.submit_by(self._submit, self._keys_of(job_id, priority), arguments, [job_id])
        job = self.get(job_id)
        assert job is not None
        return job

    def submit_by(
        self, script: LuaScript, keys: Sequence[str], arguments: Sequence[str | int], job_ids: Sequence[str]
    ) -> None:
        """Runs a script that accepts jobs, and waits until they are on Redis's disk.

        Args:
            script: which writes all of them or none.
            job_ids: the jobs, which are withdrawn where the disk takes too long.

        Raises:
            QueueUnavailable: Redis is away.
            NotOnDisk: it takes no jobs, or its disk took longer than two seconds.
            KeyTaken: another request has the idempotency key.
            TooManyJobs: as many of their owner as may be are not over yet.
        """
        created, flushed = self._run_flushed(script, keys, arguments, by_text=False)
        if isinstance(created, redis.exceptions.NoScriptError):
            created, flushed = self._run_flushed(script, keys, arguments, by_text=True)
        if isinstance(created, redis.RedisError):  # its memory or its disk is full
            raise NotOnDisk(f"Redis takes no more jobs ({created}).") from created
        if created == TOO_MANY:
            raise TooManyJobs("With these, more jobs of this key than it may have would not be over.")
        if created == KEY_TAKEN:
            raise KeyTaken
        self._check_flushed(job_ids, flushed)
        self._forget_oldest(job_ids[0])

    def _forget_oldest(self, job_id: str) -> None:
        """Removes the oldest records of those that an owner's new jobs leave too many; blobs are swept.

        job_id: one of the new jobs.
        """
        owner = self.index.owners([job_id])[job_id] or None
        excess, oldest = self.index.oldest_beyond(owner, self.max_kept)
        for old in oldest:
            job = self.get(old) if excess > 0 else None
            if job is None or not job.is_over:
                continue
            self.expire(old)
            self.server.delete(self.keys.job(old), self.keys.events(old))
            if owner is not None:  # or its message would be signed, and have turns, as those without a key
                self.server.zrem(self.keys.deliveries, old)
                self.server.delete(self.keys.delivery(old), self.keys.delivery_attempts(old))
            if job.submission.batch is not None:
                self.server.expire(self.keys.batch(job.submission.batch), BATCH_LEFT_SECONDS)
            self.index.reindex([old])
            excess -= 1

    def _run_flushed(
        self, script: LuaScript, keys: Sequence[str], arguments: Sequence[str | int], *, by_text: bool
    ) -> list[Any]:
        """Runs a script and waits for Redis's disk; returns both replies, errors among them."""
        with self.server.pipeline(transaction=False) as pipe:
            script.add_to(pipe, keys, arguments, by_text=by_text)
            pipe.waitaof(1, 0, DISK_PATIENCE_MS)
            return list(pipe.execute(raise_on_error=False))

    def key_of(self, reservation: Reservation | None) -> tuple[str, str, str, int]:
        """Names what scripts need that make an idempotency key stand for what they accept."""
        reserved = reservation or Reservation("", "")
        return reserved.key, reserved.token, reserved.fingerprint, LONGEST_QUEUE + math.ceil(self.result_ttl)

    def limit_of(self, submission: Submission) -> tuple[int, str, str]:
        """Names what scripts need that hold an owner to its number of jobs; 0 is any number."""
        most = 0 if submission.limits is None else submission.limits.concurrent or 0
        return most, self.keys.active(submission.owner or ""), self.keys.job("")

    def _check_flushed(self, job_ids: Sequence[str], flushed: Any) -> None:
        if isinstance(flushed, redis.ResponseError):  # no append-only file, or a server before 7.2
            if not self._is_warned:
                log.warning("redis does not keep jobs on disk", reason=str(flushed))
            self._is_warned = True
        elif isinstance(flushed, Exception) or flushed[0] < 1:
            for job_id in job_ids:
                self.cancel(job_id)
            raise NotOnDisk("Redis did not write the job to disk within two seconds.")

    def check_concurrency(self, owner: str | None, limits: JobLimits | None) -> None:
        """Raises TooManyJobs where ``submit`` would, before a long upload; and QueueUnavailable."""
        most = 0 if limits is None else limits.concurrent or 0
        if owner is None or not most:
            return
        ids: Any = self.server.smembers(self.keys.active(owner))
        if sum(state in ("queued", "running") for _, [state] in self.fields(list(ids), "state")) >= most:
            raise TooManyJobs("As many jobs of this key as it may have are not over yet.")

    def get(self, job_id: str) -> Job | None:
        """Reads a job; None where there is none of that id. Raises QueueUnavailable, RecordUnreadable."""
        try:
            record: Any = self.server.hgetall(self.keys.job(job_id))
        except redis.ResponseError as error:
            if "WRONGTYPE" not in str(error):
                raise
            raise RecordUnreadable(f"The key of job {job_id[:64]} holds no record.") from error
        return Job.from_record(job_id, record) if record else None

    def fields(self, ids: Sequence[str], *names: str) -> Iterator[tuple[str, list[str | None]]]:
        """Yields ids with these fields of their records, None for what is not there; without records that
        cannot be read. Raises QueueUnavailable.
        """
        for start in range(0, len(ids), AT_A_TIME):
            some = ids[start : start + AT_A_TIME]
            with self.server.pipeline(transaction=True) as pipe:
                for job_id in some:
                    pipe.hmget(self.keys.job(job_id), list(names))
                records = pipe.execute(raise_on_error=False)
            for job_id, record in zip(some, records, strict=True):
                if isinstance(record, redis.ResponseError):
                    continue
                if isinstance(record, Exception):
                    raise QueueUnavailable(f"Redis does not answer ({record}).") from record
                yield job_id, record

    def cancel(self, job_id: str) -> Ending:
        """Cancels a job. ``done``: it waited. ``asked``: its worker will stop it. ``lost``: there is none."""
        job = self.get(job_id)
        return "lost" if job is None else self._end(job.id, job.priority, "", "canceled")

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
        was_shared: bool = True,
        waits: bool = False,
    ) -> Claim | Refusal:
        """Takes a job for one attempt; what cannot be read becomes a dead letter. Raises QueueUnavailable.

        Args:
            cause: the error to record where no attempt is left.
            is_shared: it will run in a batch with others.
            held: the claim of a holder that starts the job anew after a crash.
            was_shared: False where the job of that claim was alone after all.
            waits: nothing works on it yet: should the worker die until then, no attempt is counted.
        """
        try:
            self.get(job_id)  # before an attempt is counted
        except RecordUnreadable as error:
            self.bury(job_id, entry, priority, str(error))
            return Refusal(job_id, "unreadable")
        nonce = uuid.uuid4().hex
        answer: list[str] = self._claim(
            keys=self._ending_keys(job_id, priority),
            args=[
                GROUP, worker, entry, job_id, self.lease_ms, self.attempts, nonce, int(is_shared),
                held.token if held else "", _error_json(cause), self.result_ttl, _measured(cause),
                int(was_shared), "0" if waits else "",
            ],
        )  # fmt: skip
        if answer[0] != "claimed":
            return Refusal(job_id, answer[0])  # type: ignore[arg-type]
        record = dict(zip(answer[1::2], answer[2::2], strict=True))
        return Claim(Job.from_record(job_id, record), record["token"], worker)

    def claim_again(self, held: Claim, cause: ReelwordError, *, was_shared: bool = True) -> Claim | Refusal:
        """Takes the next attempt at once, alone, for the holder of the last one (whose child died of it).

        Args:
            cause: the error to record where no attempt is left.
            was_shared: whether others were in the batch of a claim that is shared. It is not known then whose
                fault it was, and the job continues within the attempt that it had.
        """
        job = held.job
        return self.claim(
            job.id, job.entry, job.priority, held.worker,
            cause=cause, held=held, was_shared=was_shared, waits=True,
        )  # fmt: skip

    def beat(
        self,
        claim: Claim,
        stage: Stage,
        progress: float,
        answer: Mapping[str, Any] | None = None,
        *,
        has_gained: bool = False,
        is_at_work: bool | None = None,
        text: str = "",
    ) -> Pulse:
        """Renews the lease; returns ``canceled`` or ``lost`` where the job must stop.

        Args:
            progress: share of the whole job that is done.
            answer: what is known so far, where there is news.
            has_gained: whether this attempt has finished a part after which the next one resumes; it is
                not counted then, should it end.
            is_at_work: whether a child works on it, or it waits for one; None where that is not told.
            text: what is written so far, for those who follow the job alone.
        """
        job = claim.job
        pulse: Pulse = self._beat(
            keys=self._keys_of(job.id, job.priority),
            args=[
                GROUP, claim.worker, claim.token, self.lease_ms, stage, round(progress, 4),
                json.dumps(answer) if answer else "", _segments_done(answer), int(has_gained),
                "" if is_at_work is None else int(is_at_work), text,
            ],
        )  # fmt: skip
        return pulse

    def succeed(self, claim: Claim, answer: Mapping[str, Any], sha256: str | None = None) -> bool:
        """Writes the answer; False where the claim was lost, or cancellation was asked for.

        Args:
            sha256: of the file, where its features are kept, which go when the job's result goes.
        """
        return self._end_claimed(claim, "succeeded", answer, None, sha256) == "done"

    def fail(self, claim: Claim, error: ReelwordError, answer: Mapping[str, Any] | None = None) -> bool:
        """Ends the job as failed; False where the claim was lost or cancellation was asked for.

        Args:
            error: its code, message and hint are recorded.
            answer: what is known all the same.
        """
        return self._end_claimed(claim, "failed", answer, error) == "done"

    def stop(self, claim: Claim) -> bool:
        """Ends a running job whose cancellation was asked for; True also where that has ended it already."""
        return self._end_claimed(claim, "canceled") == "done"

    def hand_back(self, claim: Claim) -> bool:
        """Puts a running job back, first in line, its attempt not counted: its worker has to leave."""
        return self._end_claimed(claim, "queued") == "done"

    def give_way(self, claim: Claim) -> bool:
        """Puts a running job back behind what waits, its attempt not counted: a film whose parts are kept."""
        return self._end_claimed(claim, "behind") == "done"

    def expire(self, job_id: str) -> bool:
        """Forgets the result of a job that is over; the record itself stays as long again."""
        is_done = self._end(job_id, "normal", "", "expired") == "done"  # whatever its priority
        if not is_done:
            self.server.zrem(self.keys.expiry, job_id)
        return is_done

    def now(self) -> float:
        """Returns seconds since 1970 by Redis's clock, no more of them than have passed. For expiry."""
        seconds, millionths = self.server.time()
        return self._clock.read(seconds + millionths / 1e6)

    def due(self, limit: int = 100) -> list[str]:
        """Lists the ids of jobs whose results have been kept long enough."""
        now = self.now()
        if self.server.type(self.keys.expiry) != "zset":  # the next job that ends makes it anew
            return []
        ids: Any = self.server.zrange(self.keys.expiry, "-inf", now, byscore=True, offset=0, num=limit)
        return list(ids)

    def forgotten_since(self, moment: float) -> tuple[list[str], float]:
        """Lists the sha256 of files whose results have gone since ``moment``; and the present, by Redis."""
        now: Any = self.server.time()
        if self.server.type(self.keys.forgotten) != "zset":
            return [], float(now[0])
        digests: Any = self.server.zrange(self.keys.forgotten, moment, "+inf", byscore=True)
        return list(digests), float(now[0])

    def bury(
        self,
        job_id: str,
        entry: str,
        priority: Priority,
        reason: str,
        fields: Mapping[str, str] | None = None,
    ) -> None:
        """Takes an entry that cannot be read out of the queue and leaves a dead letter.

        Args:
            job_id: empty where the entry names none.
            reason: why it cannot be read.
            fields: what an entry has that names no job.
        """
        letter = DeadLetter(
            name=job_id or entry,
            kind="job" if job_id else "entry",
            key=self.keys.job(job_id) if job_id else self.keys.stream(priority),
            reason=reason,
            at=time.time(),
            fields=dict(fields or {}),
        )
        arguments = [GROUP, entry, letter.name, letter_text(letter)]
        self._bury(keys=self._keys_of(job_id, priority), args=arguments)
        log.error("dead letter", letter=letter.name, reason=reason)

    def requeue(self, letter: DeadLetter) -> None:
        """Puts a dead letter's job into its queue again. Raises RecordUnreadable where none could run."""
        job = self.get(letter.name) if letter.kind == "job" else None
        if job is None:
            raise RecordUnreadable(f"{letter.name} names no job that could run ({letter.reason})")
        if job.is_over:
            raise RecordUnreadable(f"Job {job.id} has {job.state} already.")
        self._requeue(keys=self._keys_of(job.id, job.priority), args=[job.id])

    def _end_claimed(self, claim: Claim, state: State | Literal["behind"], *outcome: Any) -> Ending:
        return self._end(claim.job.id, claim.job.priority, claim.token, state, *outcome)

    def _end(
        self,
        job_id: str,
        priority: Priority,
        token: str,
        state: State | Literal["behind"],
        answer: Mapping[str, Any] | None = None,
        error: ReelwordError | None = None,
        sha256: str | None = None,
    ) -> Ending:
        text = json.dumps(answer) if answer else ""
        if len(text) > ANSWER_LIMIT:
            raise ValueError(f"an answer of {len(text)} bytes belongs into a blob")
        record, stream, expiry, *others = self._ending_keys(job_id, priority)
        ending: Ending = self._finish(
            keys=[record, stream, expiry, self.keys.recent_runs, *others],
            args=[
                GROUP, job_id, token, state, text, "" if error is None else _error_json(error),
                self.result_ttl, self.lease_ms, _segments_done(answer),
                "" if state == "expired" else _measured(error, answer), sha256 or "",
            ],
        )  # fmt: skip
        return ending

    def _keys_of(self, job_id: str, priority: Priority) -> list[str]:
        """Names what scripts need that may change a job's state; they have clock and letters last."""
        keys = self.keys
        return [keys.job(job_id), keys.stream(priority), keys.events(job_id), keys.clock, keys.dead]

    def _ending_keys(self, job_id: str, priority: Priority) -> list[str]:
        """Names what scripts need that may end a job."""
        record, stream, events, clock, dead = self._keys_of(job_id, priority)
        return [record, stream, self.keys.expiry, events, clock, dead]

    @property
    def lease_ms(self) -> int:
        return round(self.lease * 1000)


def _segments_done(answer: Mapping[str, Any] | None) -> int | str:
    """Counts the segments of a film that are done; empty where the answer has none."""
    kept = (answer or {}).get("segments")
    return "" if kept is None else int(kept["done"])


def _error_json(error: ReelwordError) -> str:
    return json.dumps(error.document())


def _measured(error: ReelwordError | None, answer: Mapping[str, Any] | None = None) -> str:
    """Writes what /metrics counts of an end: seconds by stage, and whether the video was the trouble."""
    timings: Mapping[str, Any] = (answer or {}).get("timings") or {}
    seconds = {stage: spent for stage, spent in timings.items() if spent is not None}
    return json.dumps({"seconds": seconds, "about_media": error is not None and error.about_media})
