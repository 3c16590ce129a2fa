"""Keeps batches: jobs that were sent together, are counted together, and are accepted all or none.

One Lua script writes the jobs and the batch's record: a process that dies before it leaves no job, only files
that the sweeper removes as orphans, and one that dies after it has accepted all. How many jobs are in which
state is read from their records, each time: there is no second truth that could differ. A batch is kept as
long as the last of its jobs (expire_batch in lua/finish.lua).
"""

import json
import re
from collections.abc import Sequence
from typing import Any

import redis
from pydantic import BaseModel, Field, ValidationError

from app.errors import RecordUnreadable
from app.jobs.idempotency import Reservation
from app.jobs.job import STATES, State
from app.jobs.job_store import Jobs, NewJob
from app.jobs.redis_client import LuaScript

BATCH_ID = re.compile(r"[0-9a-f]{32}")
MOST_ITEMS = 100  #: jobs of one batch: all of them are read whenever it is asked for
HELD_SECONDS = 600  #: longer than moving one file to the blobs may take


class BatchItem(BaseModel, frozen=True):
    """Names a job of a batch, and what was sent for it."""

    job_id: str
    filename: str = ""
    url: str | None = None


class JobBatch(BaseModel, frozen=True):
    """Holds a batch as it was sent; it never changes."""

    id: str
    created_at: float  #: seconds since 1970
    owner: str | None = None  #: id of the key of the API that it was sent with
    metadata: dict[str, Any] | None = None
    items: tuple[BatchItem, ...] = Field(max_length=MOST_ITEMS)


class Batches:
    """Submits and reads batches. Raises QueueUnavailable."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._submit = LuaScript(jobs.server, "submit_batch")

    def submit(
        self, batch_id: str, jobs: Sequence[NewJob], reservation: Reservation | None = None
    ) -> JobBatch:
        """Accepts all jobs, which are on Redis's disk when this returns, or none.

        Args:
            batch_id: its id, which each job's submission has too.
            jobs: of one priority, one owner and one metadata.
            reservation: of the idempotency key that stands for the batch from now on.

        Raises:
            QueueUnavailable: Redis is away; whether they were accepted is not known.
            NotOnDisk: its disk took longer than two seconds; the jobs are withdrawn.
            KeyTaken: the key stands for another one already.
            TooManyJobs: more of their owner than may be would not be over.
        """
        keys, first = self._jobs.keys, jobs[0]
        items = [
            BatchItem(job_id=job.job_id, filename=job.filename, url=job.submission.source_url) for job in jobs
        ]
        terms = {"owner": first.submission.owner, "metadata": first.submission.metadata}
        arguments: list[str | int] = [
            self._jobs.lease_ms,
            *self._jobs.limit_of(first.submission),
            *self._jobs.key_of(reservation),
            json.dumps([[job.job_id, job.fields()] for job in jobs]),
            batch_id,
            "items",
            json.dumps([item.model_dump(exclude_defaults=True) for item in items]),
            "told",
            json.dumps(terms),
        ]
        batch_keys = [keys.batch(batch_id), keys.batch_jobs(batch_id), keys.stream(first.priority)]
        names = [*batch_keys, keys.clock, keys.dead]
        self._jobs.submit_by(self._submit, names, arguments, [job.job_id for job in jobs])
        batch = self.get(batch_id)
        assert batch is not None
        return batch

    def get(self, batch_id: str) -> JobBatch | None:
        """Reads a batch; None where there is none of that id. Raises RecordUnreadable."""
        try:
            record: Any = self._jobs.server.hgetall(self._jobs.keys.batch(batch_id))
            if not record:
                return None
            return JobBatch.model_validate(
                {
                    "id": batch_id,
                    "created_at": record["created_at"],
                    "items": json.loads(record["items"]),
                    **json.loads(record["told"]),
                }
            )
        except (redis.ResponseError, KeyError, ValueError, TypeError, ValidationError) as error:
            reason = str(error).splitlines()[0]
            raise RecordUnreadable(f"The record of batch {batch_id} cannot be read: {reason}.") from error

    def states(self, batch: JobBatch) -> list[State]:
        """Reads the state of each of its jobs at one moment; those that are forgotten had expired, and one
        that cannot be read waits to be mended.
        """
        names: dict[str | None, State] = {None: "expired", **{state: state for state in STATES}}
        ids = [item.job_id for item in batch.items]
        states = {job_id: names.get(state, "queued") for job_id, [state] in self._jobs.fields(ids, "state")}
        return [states.get(job_id, "queued") for job_id in ids]


def hold_uploads(jobs: Jobs, job_ids: Sequence[str]) -> None:
    """Keeps the sweeper off the files of jobs that are about to be accepted, for HELD_SECONDS.

    Of many files the first have long been there when the last one is: they are no orphans meanwhile. Raises
    QueueUnavailable.
    """
    until = int(jobs.server.time()[0]) + HELD_SECONDS
    jobs.server.zadd(jobs.keys.held_uploads, dict.fromkeys(job_ids, until))


def held_uploads(jobs: Jobs) -> set[str]:
    """Lists the jobs whose files are held, and forgets those whose time is over. Raises QueueUnavailable."""
    key = jobs.keys.held_uploads
    if jobs.server.type(key) != "zset":
        return set()
    now = jobs.server.time()[0]
    jobs.server.zremrangebyscore(key, "-inf", now)
    job_ids: Any = jobs.server.zrange(key, 0, -1)
    return set(job_ids)
