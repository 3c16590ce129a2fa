"""Reads the changes of all jobs that this process's clients follow: one task, one connection to Redis.

A client who follows waits for a wake-up, which costs neither a thread nor a poll. What is new is kept for a
while beside the job, so that many who follow one job make it into events once. The places of waiting jobs are
looked at each second, for all of them at once, as long as there are any.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, TypeAlias

import anyio
import anyio.to_thread
import redis
import structlog
from redis.asyncio import Redis
from starlette.requests import ClientDisconnect, Request

from app.documents.events import StateEvent
from app.errors import QueueUnavailable
from app.jobs.job import Job, Keys, QueuePosition
from app.jobs.queue_position import QueuePositions
from app.jobs.redis_client import end_tasks, entry_number

BLOCK_MS = 200  #: of a read, after which jobs that are followed since are read too
PAUSE = 0.03  #: seconds between two reads: what many workers say meanwhile comes in one
MOST = 100  #: changes of one job that are read at once
KEPT = 64  #: changes of a job that are kept for those who follow it
PLACES_SECONDS = 1.0  #: between two looks at places in the queue
RECORDS_SECONDS = 15.0  #: between two looks whether jobs have ended without a word (by a worker of old)
AWAY_SECONDS = 1.0  #: pause while Redis is away

HANG_UP_SECONDS = 1.0  #: between two looks whether the client of a held request is still there
OPEN_STATES = ("queued", "running")
ChangeNumber: TypeAlias = tuple[int, int]

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class JobChange:
    """Holds how a job stood after one change."""

    id: str  #: of the stream's entry
    standing: StateEvent
    #: Numbers of the film's segments done since the change before; where none is, ``stop`` counts all.
    segments: range

    @property
    def number(self) -> ChangeNumber:
        """Puts changes into their order."""
        return entry_number(self.id)

    @property
    def is_end(self) -> bool:
        return self.standing.state not in OPEN_STATES

    @property
    def is_first(self) -> bool:
        """Returns whether it is the job's acceptance, as far as it shows: nothing came before."""
        standing = (self.standing.state, self.standing.attempt, self.standing.progress)
        return standing == ("queued", 0, 0.0) and not self.segments.stop

    @classmethod
    def read(cls, job_id: str, entry: str, fields: Mapping[str, str]) -> Self:
        """Reads an entry; a state that this version does not know is passed on."""
        first, _, stop = fields["segments"].partition("-")
        standing = StateEvent.model_construct(
            id=job_id,
            state=fields["state"],  # type: ignore[arg-type]
            stage=fields["stage"] or None,  # type: ignore[arg-type]
            progress=float(fields["progress"]),
            attempt=int(fields["attempt"]),
            cancel_requested=fields["cancel"] == "1",
            text=fields.get("text") or None,
        )
        return cls(entry, standing, range(int(first), int(stop)))


class FollowedJob:
    """Holds what is new of a job that clients follow."""

    def __init__(self, job: Job, last: ChangeNumber) -> None:
        self.job, self.last, self.floor = job, last, last
        #: Its last changes, all of those after ``floor``.
        self.recent: deque[JobChange] = deque()
        #: In the queue, as last seen; read only while ``has_place`` is true.
        self.position = QueuePosition()
        #: As its record or its last change has it.
        self.is_queued, self.is_over = job.state == "queued", job.is_over
        #: How many read it, and whether one of them is sent its place in the queue.
        self.followers, self.has_place = 0, False
        self.wake = asyncio.Event()

    def add(self, changes: Iterable[JobChange]) -> None:
        """Takes what was read, and wakes who follows."""
        for change in changes:
            if change.number <= self.last:
                continue
            self.recent.append(change)
            self.last = change.number
            self.is_queued, self.is_over = change.standing.state == "queued", change.is_end
        while len(self.recent) > KEPT:
            self.floor = self.recent.popleft().number
        self.notify()

    def move(self, position: QueuePosition) -> None:
        """Notes where it stands, and wakes who follows if that is somewhere else."""
        before, self.position = self.position, position
        if (before.place, before.workers) != (position.place, position.workers):
            self.notify()

    def notify(self) -> None:
        """Wakes all who wait; they find the next wake-up in ``wake``."""
        self.wake.set()
        self.wake = asyncio.Event()


@dataclass(eq=False)
class EventReader:
    """Follows jobs for many clients. Enter it in the event loop that they are in."""

    server: Redis  #: the connection to Redis; it is closed at the end
    keys: Keys  #: names in Redis
    positions: QueuePositions  #: where jobs stand in the queue
    most: int  #: clients that may follow at once
    most_of_one: int  #: of them, and of requests that are held, those of one key

    def __post_init__(self) -> None:
        self._of_owner = Counter[str]()
        self._followed: dict[str, FollowedJob] = {}
        self._has_work = asyncio.Event()
        self.closing = anyio.Event()  # set when the server is stopped: those who follow are to end
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_full(self) -> bool:
        return sum(each.followers for each in self._followed.values()) >= self.most

    def is_full_for(self, owner: str | None) -> bool:
        """Returns whether a key follows as much as it may; who needs none shares the room of all."""
        return owner is not None and self._of_owner[owner] >= self.most_of_one

    async def __aenter__(self) -> Self:
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
        await self.server.aclose()

    @asynccontextmanager
    async def follow(
        self, job: Job, last: str, owner: str | None, *, has_place: bool = True
    ) -> AsyncIterator[FollowedJob]:
        """Follows a job meanwhile.

        Args:
            last: id of the change that it stands at.
            owner: id of the key that follows it; None without one.
            has_place: whether its place in the queue is looked at, too.
        """
        self._of_owner[owner or ""] += 1
        followed = self._followed.setdefault(job.id, FollowedJob(job, entry_number(last)))
        followed.followers += 1
        followed.has_place |= has_place
        self._has_work.set()
        try:
            yield followed
        finally:
            self._of_owner -= Counter([owner or ""])
            followed.followers -= 1
            if not followed.followers:
                del self._followed[job.id]
            if not self._followed:
                self._has_work.clear()

    async def looks(
        self, job_id: str, seconds: float, request: Request, owner: str | None, *, has_place: bool = True
    ) -> AsyncGenerator[bool, None]:
        """Yields each time when a job is to be looked at: at once, and after each of its changes.

        Args:
            job_id: the job; of one that is not there nothing is yielded.
            request: whose client may hang up.
            owner: id of its key; None without one.
            has_place: whether a change of its place in the queue counts.

        Yields:
            Whether it is the last time: the seconds are over, or the server stops.

        Raises:
            ClientDisconnect: the client has hung up.
        """
        end = anyio.current_time() + seconds
        job, last = await self.now(job_id)
        if job is None:
            return
        async with self.follow(job, last, owner, has_place=has_place) as followed:
            is_last = False
            while not is_last:
                wake = followed.wake
                is_last = anyio.current_time() >= end or self.closing.is_set()
                yield is_last
                while not is_last and not wake.is_set() and (left := end - anyio.current_time()) > 0:
                    with anyio.move_on_after(min(left, HANG_UP_SECONDS)):
                        await wake.wait()
                    if await request.is_disconnected():
                        raise ClientDisconnect

    async def now(self, job_id: str) -> tuple[Job | None, str]:
        """Reads a job and the id of its last change, in one step. Raises RecordUnreadable."""
        async with self.server.pipeline(transaction=True) as pipe:
            pipe.hgetall(self.keys.job(job_id))
            pipe.xrevrange(self.keys.events(job_id), count=1)
            record, last = await pipe.execute()
        job = Job.from_record(job_id, record) if record else None
        return job, last[0][0] if last else "0-0"

    async def since(self, job_id: str, change_id: str) -> list[JobChange]:
        """Reads the changes from one on, that one with them where it is kept. Raises QueueUnavailable."""
        entries: Any = await self.server.xrange(self.keys.events(job_id), min=change_id)
        return [JobChange.read(job_id, entry, fields) for entry, fields in entries]

    async def _repeat(self, work: Callable[[], Awaitable[None]], pause: float) -> None:
        """Reads changes as long as clients follow jobs; retries while Redis is away."""
        while True:
            await self._has_work.wait()
            try:
                await work()
            except (redis.RedisError, QueueUnavailable, OSError) as error:
                log.warning("jobs cannot be followed: redis is away", reason=str(error))
                await asyncio.sleep(AWAY_SECONDS)
            except Exception:
                log.exception("the reader of events failed once and continues")
                await asyncio.sleep(AWAY_SECONDS)
            await asyncio.sleep(pause)

    async def _read(self) -> None:
        """Waits a moment for changes of the jobs that are followed and not over."""
        jobs = {self.keys.events(name): name for name, each in self._followed.items() if not each.is_over}
        if jobs:
            after: Any = {key: "{}-{}".format(*self._followed[name].last) for key, name in jobs.items()}
            reply: Any = await self.server.xread(after, count=MOST, block=BLOCK_MS)
            for key, entries in reply or ():
                if (followed := self._followed.get(jobs[key])) is not None:
                    followed.add(JobChange.read(jobs[key], entry, fields) for entry, fields in entries)
        await asyncio.sleep(PAUSE if jobs else BLOCK_MS / 1000)

    async def _place(self) -> None:
        queued = [each for each in self._followed.values() if each.is_queued and each.has_place]
        if queued:
            snapshot = await anyio.to_thread.run_sync(self.positions.snapshot)
            for each in queued:
                if each.is_queued:
                    each.move(snapshot.position_of(each.job))

    async def _look_after(self) -> None:
        """Finds jobs that ended without a change in their stream, or whose record is gone."""
        open_jobs = [job_id for job_id, each in self._followed.items() if not each.is_over]
        async with self.server.pipeline(transaction=False) as pipe:
            for job_id in open_jobs:
                pipe.hget(self.keys.job(job_id), "state")
            states = await pipe.execute()
        for job_id, state in zip(open_jobs, states, strict=True):
            followed = self._followed.get(job_id)
            if followed is not None and state not in OPEN_STATES:
                followed.is_over = True
                followed.notify()
