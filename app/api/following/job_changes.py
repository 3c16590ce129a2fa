"""Reads how jobs changed: a stream for each, which the scripts write beside the record (lua/common.lua)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from redis.asyncio import Redis

from app.jobs.job import Job, Keys, Stage, State
from app.jobs.queue_position import entry_number
from app.jobs.redis_client import unavailable_if_away

ChangeNumber: TypeAlias = tuple[int, int]
BEGINNING: ChangeNumber = (0, 0)
OPEN_STATES = ("queued", "running")


@dataclass(frozen=True)
class JobChange:
    """Holds how a job stood after one change.

    id: of the stream's entry. segments: numbers of the film's segments that were done since the change
    before; where none is, ``stop`` still says how many there are.
    """

    id: str
    state: State
    stage: Stage | None
    progress: float
    attempt: int
    is_cancel_requested: bool
    segments: range

    @property
    def number(self) -> ChangeNumber:
        """Puts changes into their order."""
        return entry_number(self.id)

    @property
    def is_end(self) -> bool:
        return self.state not in OPEN_STATES

    @property
    def is_first(self) -> bool:
        """Tells whether it is the job's acceptance, as far as it shows: nothing came before."""
        return (self.state, self.attempt, self.progress) == ("queued", 0, 0.0) and not self.segments.stop

    @classmethod
    def read(cls, entry: str, fields: Mapping[str, str]) -> JobChange:
        first, _, stop = fields["segments"].partition("-")
        return cls(
            id=entry,
            state=fields["state"],  # type: ignore[arg-type]
            stage=fields["stage"] or None,  # type: ignore[arg-type]
            progress=float(fields["progress"]),
            attempt=int(fields["attempt"]),
            is_cancel_requested=fields["cancel"] == "1",
            segments=range(int(first), int(stop)),
        )


class JobChanges:
    """Reads changes, in an event loop. Raises QueueUnavailable.

    Args:
        server: the connection to Redis.
        keys: names in Redis.
    """

    def __init__(self, server: Redis, keys: Keys) -> None:
        self._server, self._keys = server, keys

    async def now(self, job_id: str) -> tuple[Job | None, str]:
        """Reads a job and the id of its last change, in one step. Raises RecordUnreadable."""
        with unavailable_if_away():
            async with self._server.pipeline(transaction=True) as pipe:
                pipe.hgetall(self._keys.job(job_id))
                pipe.xrevrange(self._keys.events(job_id), count=1)
                record, last = await pipe.execute()
        job = Job.from_record(job_id, record) if record else None
        return job, last[0][0] if last else "0-0"

    async def since(self, job_id: str, change_id: str) -> list[JobChange]:
        """Reads the changes from one on, that one with them where it is still kept."""
        with unavailable_if_away():
            entries: Any = await self._server.xrange(self._keys.events(job_id), min=change_id)
        return [JobChange.read(entry, fields) for entry, fields in entries]

    async def wait(
        self, after: Mapping[str, ChangeNumber], block_ms: int, most: int
    ) -> dict[str, list[JobChange]]:
        """Waits for changes of many jobs.

        Args:
            after: for each job the last change that is known.
            block_ms: how long.
            most: changes of one job that are read at once.

        Returns:
            The changes by job; none where nothing came in time.
        """
        jobs = {self._keys.events(job_id): job_id for job_id in after}
        streams: Any = {key: "{}-{}".format(*after[job_id]) for key, job_id in jobs.items()}
        with unavailable_if_away():
            reply: Any = await self._server.xread(streams, count=most, block=block_ms)
        return {
            jobs[key]: [JobChange.read(entry, fields) for entry, fields in entries]
            for key, entries in reply or ()
        }

    async def states(self, job_ids: Sequence[str]) -> dict[str, str | None]:
        """Reads the states of jobs; None where there is no record."""
        with unavailable_if_away():
            async with self._server.pipeline(transaction=False) as pipe:
                for job_id in job_ids:
                    pipe.hget(self._keys.job(job_id), "state")
                found = await pipe.execute()
        return dict(zip(job_ids, found, strict=True))
