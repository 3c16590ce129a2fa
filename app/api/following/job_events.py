"""Makes a job's changes into the events that its followers are sent.

A change is sent as the segments that are done since, then the state, or the end. The id of a change's last
event is the change's own, so that a client that returns with an id is sent what came after it, nothing twice.
A client without an id, or with one that is kept no more, is sent the present state first.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio.to_thread
import redis
import structlog
from sse_starlette import ServerSentEvent

from app.api.following.event_reader import EventReader, FollowedJob, JobChange
from app.documents.events import EndEvent, EventId, LostEvent, SegmentEvent, StateEvent
from app.documents.job import Document, document_of, segment_lines
from app.errors import JobError
from app.jobs.blobs import Blobs
from app.jobs.job import Job, QueuePosition, State
from app.jobs.queue_position import QueuePositions
from app.jobs.redis_client import entry_number

RETRY_MS = 1000  #: after which a browser connects again where the connection broke
ALL = 10**9  #: more segments than any film has

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class JobEvents:
    """Sends one client the events of a job."""

    reader: EventReader  #: reads what is new
    positions: QueuePositions  #: where jobs stand in the queue
    blobs: Blobs  #: where segments and long answers lie
    job: Job  #: as it stands
    last: str  #: id of the change that it stands at
    owner: str | None  #: id of the client's key
    after: EventId | None  #: the event after which the client resumes; None: from the present

    def __post_init__(self) -> None:
        self._at = self.after.change if self.after else self.last
        self._told: QueuePosition | None = None
        self._has_ended = False

    async def stream(self) -> AsyncIterator[ServerSentEvent]:
        """Yields events until the job's end; earlier where Redis is away or the server stops."""
        try:
            async with self.reader.follow(self.job, self.last, self.owner) as followed:
                for event in await self._begin():
                    yield event
                while not self._has_ended and not self.reader.closing.is_set():
                    wake = followed.wake
                    news = await self._news(followed)
                    for event in news:
                        yield event
                    if not news:
                        await wake.wait()
        except (redis.RedisError, JobError, OSError) as error:
            log.warning("events end early", job=self.job.id, reason=str(error))

    async def _begin(self) -> list[ServerSentEvent]:
        """Makes what the client has missed, or the present."""
        missed = None if self.after is None else await self._missed(self.after)
        if missed is not None:
            return [event for each in missed for event in await self._events_of(*each)]
        lost = [] if self.after is None else [_event("lost", LostEvent(id=self.job.id), self.after)]
        return [*lost, *await self._present()]

    async def _missed(self, after: EventId) -> list[tuple[JobChange, range]] | None:
        """Reads the changes after an event with their segments' numbers; None where some are kept no more."""
        changes = await self.reader.since(self.job.id, after.change)
        rest = [(each, each.segments) for each in changes]
        if after.change == "0-0":
            return rest if changes and changes[0].is_first else None
        if not changes or changes[0].id != after.change:
            return None
        if after.segment is None:
            return rest[1:]
        return [(changes[0], range(after.segment + 1, changes[0].segments.stop)), *rest[1:]]

    async def _present(self) -> list[ServerSentEvent]:
        """Makes the segments that are done, then the state or the end, as the job's record has them."""
        job, self._at = await self.reader.now(self.job.id)
        self.job = job or self.job
        segments = await self._segments(self._at, range(ALL))
        if self.job.is_over:
            return [*segments, await self._end(self.job.state)]
        return [*segments, await self._state(_standing(self.job))]

    async def _news(self, followed: FollowedJob) -> list[ServerSentEvent]:
        """Makes what has happened since the last event, if anything."""
        if changes := await self._changes(followed):
            return [event for each in changes for event in await self._events_of(each, each.segments)]
        if followed.is_over:
            await self._read_job()
            return [await self._end(self.job.state)]
        if followed.is_queued and self._has_moved(followed.position):
            return [self._queued(followed.position)]
        return []

    async def _changes(self, followed: FollowedJob) -> list[JobChange]:
        at = entry_number(self._at)
        if at < followed.floor:
            changes = await self.reader.since(self.job.id, self._at)
        else:
            changes = list(followed.recent)
        return [change for change in changes if change.number > at]

    async def _events_of(self, change: JobChange, numbers: range) -> list[ServerSentEvent]:
        if numbers or change.is_end:
            await self._read_job()
        segments = await self._segments(change.id, numbers)
        self._at = change.id
        standing = change.standing
        end = self._end(standing.state) if change.is_end else self._state(standing)
        return [*segments, await end]

    async def _segments(self, change_id: str, numbers: range) -> list[ServerSentEvent]:
        if not numbers:
            return []
        lines = await anyio.to_thread.run_sync(segment_lines, self.job, self.blobs, numbers)
        return [
            _event("segment", SegmentEvent(number=number, **line.model_dump()), EventId(change_id, number))
            for number, line in zip(numbers, lines, strict=False)
        ]

    async def _state(self, standing: StateEvent) -> ServerSentEvent:
        if standing.state == "queued":
            return self._queued(await anyio.to_thread.run_sync(self.positions.of, self.job))
        return _event("state", standing, EventId(self._at))

    def _queued(self, position: QueuePosition) -> ServerSentEvent:
        self._told = position
        state = StateEvent(
            id=self.job.id,
            state="queued",
            progress=self.job.progress,
            attempt=self.job.attempt,
            **vars(position),
        )
        return _event("state", state, EventId(self._at))

    def _has_moved(self, position: QueuePosition) -> bool:
        """Returns whether a place in the queue is news; one that is not known yet is none."""
        last_sent = self._told or QueuePosition()
        is_known = position.place is not None
        return is_known and (position.place, position.workers) != (last_sent.place, last_sent.workers)

    async def _end(self, state: State) -> ServerSentEvent:
        self._has_ended = True
        document = await anyio.to_thread.run_sync(document_of, self.job, self.blobs)
        end = EndEvent(id=self.job.id, state=state, caption=document.caption, error=document.error)
        return _event("end", end, EventId(self._at))

    async def _read_job(self) -> None:
        """Reads the record as it is now; the last one is kept where it is gone."""
        self.job = (await self.reader.now(self.job.id))[0] or self.job


def _standing(job: Job) -> StateEvent:
    return StateEvent(
        id=job.id,
        state=job.state,
        stage=job.stage,
        progress=job.progress,
        attempt=job.attempt,
        cancel_requested=job.cancel_requested,
    )


def _event(kind: str, data: Document, event_id: EventId) -> ServerSentEvent:
    return ServerSentEvent(data.model_dump_json(), event=kind, id=str(event_id), retry=RETRY_MS, sep="\n")
