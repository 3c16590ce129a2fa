"""Reads the changes of all jobs that this process's clients follow: one task, one connection to Redis.

A client who follows waits for a wake-up, which costs neither a thread nor a poll. What is new is kept for a
while beside the job, so that many who follow one job make it into events once. The places of waiting jobs are
looked at each second, for all of them at once, as long as there are any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager

import anyio
import anyio.to_thread
import redis
import structlog
from redis.asyncio import Redis

from app.api.following.job_changes import ChangeNumber, JobChange, JobChanges
from app.errors import QueueUnavailable
from app.jobs.job import Job, Keys
from app.jobs.queue_position import QueuePosition, QueuePositions, entry_number
from app.jobs.redis_client import end_tasks

BLOCK_MS = 200  #: of a read, after which jobs that are followed since are read too
PAUSE = 0.03  #: seconds between two reads: what many workers say meanwhile comes in one
MOST = 100  #: changes of one job that are read at once
KEPT = 64  #: changes of a job that are kept for those who follow it
PLACES_SECONDS = 1.0  #: between two looks at places in the queue
RECORDS_SECONDS = 15.0  #: between two looks whether jobs have ended without a word (by a worker of old)
AWAY_SECONDS = 1.0  #: pause while Redis is away

log = structlog.get_logger(__name__)


class FollowedJob:
    """Holds what is new of a job that somebody follows.

    recent: its last changes, all of those after ``floor``. position: where it waits in the queue, as it was
    last seen. is_over: it has ended, as its record or its last change says.
    """

    def __init__(self, job: Job, last: ChangeNumber) -> None:
        self.job, self.last, self.floor = job, last, last
        self.recent: deque[JobChange] = deque()
        self.position = QueuePosition()
        self.is_queued, self.is_over = job.state == "queued", job.is_over
        self.followers = 0
        self.wake = asyncio.Event()

    def add(self, changes: Iterable[JobChange]) -> None:
        """Takes what was read, and wakes who follows."""
        for change in changes:
            if change.number <= self.last:
                continue
            self.recent.append(change)
            self.last = change.number
            self.is_queued, self.is_over = change.state == "queued", change.is_end
        while len(self.recent) > KEPT:
            self.floor = self.recent.popleft().number
        self.notify()

    def move(self, position: QueuePosition) -> None:
        """Notes where it stands, and wakes who follows if that is somewhere else."""
        told, self.position = self.position, position
        if (told.place, told.workers) != (position.place, position.workers):
            self.notify()

    def notify(self) -> None:
        """Wakes all who wait; they find the next wake-up in ``wake``."""
        self.wake.set()
        self.wake = asyncio.Event()


class EventReader:
    """Follows jobs for many clients. Enter it in the event loop that they are in.

    Args:
        server: the connection to Redis; it is closed at the end.
        keys: names in Redis.
        positions: where jobs stand in the queue.
        most: clients that may follow at once.
    """

    def __init__(self, server: Redis, keys: Keys, positions: QueuePositions, most: int) -> None:
        self.changes = JobChanges(server, keys)
        self._server, self._positions, self._most = server, positions, most
        self._followed: dict[str, FollowedJob] = {}
        self._has_work = asyncio.Event()
        self.closing = anyio.Event()  # set when the server is told to stop: who follows is to end
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_full(self) -> bool:
        return sum(each.followers for each in self._followed.values()) >= self._most

    async def __aenter__(self) -> EventReader:
        works = ((self._read, 0.0), (self._place, PLACES_SECONDS), (self._look_after, RECORDS_SECONDS))
        self._tasks = [asyncio.create_task(self._repeat(work, pause)) for work, pause in works]
        self._tasks.append(asyncio.create_task(self._close()))
        return self

    async def _close(self) -> None:
        await self.closing.wait()
        for followed in self._followed.values():
            followed.notify()

    async def __aexit__(self, *exception: object) -> None:
        await end_tasks(self._tasks)
        await self._server.aclose()

    @asynccontextmanager
    async def follow(self, job: Job, last: str) -> AsyncIterator[FollowedJob]:
        """Follows a job meanwhile.

        Args:
            job: as it stands.
            last: id of the change that it stands at.
        """
        followed = self._followed.setdefault(job.id, FollowedJob(job, entry_number(last)))
        followed.followers += 1
        self._has_work.set()
        try:
            yield followed
        finally:
            followed.followers -= 1
            if not followed.followers:
                del self._followed[job.id]
            if not self._followed:
                self._has_work.clear()

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Works again and again while somebody follows; an absence of Redis is waited out."""
        while True:
            await self._has_work.wait()
            try:
                await work()
            except (redis.RedisError, QueueUnavailable, OSError) as error:
                log.warning("jobs cannot be followed: redis is away", reason=str(error))
                await asyncio.sleep(AWAY_SECONDS)
            except Exception:
                log.exception("the reader of events stumbled and goes on")
                await asyncio.sleep(AWAY_SECONDS)
            await asyncio.sleep(pause)

    async def _read(self) -> None:
        after = {job_id: each.last for job_id, each in self._followed.items() if not each.is_over}
        if after:
            found = await self.changes.wait(after, BLOCK_MS, MOST)
            for job_id, changes in found.items():
                if (followed := self._followed.get(job_id)) is not None:
                    followed.add(changes)
        await asyncio.sleep(PAUSE if after else BLOCK_MS / 1000)

    async def _place(self) -> None:
        queued = [each for each in self._followed.values() if each.is_queued]
        if queued:
            snapshot = await anyio.to_thread.run_sync(self._positions.snapshot)
            for each in queued:
                if each.is_queued:
                    each.move(snapshot.position_of(each.job))

    async def _look_after(self) -> None:
        """Finds jobs that ended without a change's being told, or whose record is gone."""
        open_jobs = [job_id for job_id, each in self._followed.items() if not each.is_over]
        for job_id, state in (await self.changes.states(open_jobs)).items():
            followed = self._followed.get(job_id)
            if followed is not None and state not in ("queued", "running"):
                followed.is_over = True
                followed.notify()
