"""Keeps deliveries in Redis: what is due when, what was tried, how it went. API processes share it."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import redis
from redis.asyncio import Redis

from app.documents.deliveries import AttemptDocument, DeliveryDocument, DeliveryState
from app.documents.job import rfc3339
from app.errors import RecordUnreadable
from app.jobs.job import Keys, State
from app.webhooks.messages import Message

GROUP = "webhooks"  #: consumer group of the stream of all ends
CONSUMER = "api"  #: all processes read as one, so that none leaves a consumer behind
STALE_MS = 30_000  #: after which an end that a process has read and not dealt with is read by another
AT_ONCE = 32  #: ends that are read at once
LEASE_MS = 60_000  #: after which an attempt whose process died is followed by the next; far above Sender's
MOST_OF_ONE = 4  #: attempts of one owner that are under way at once in a process
KEPT_ATTEMPTS = 50
#: Seconds that a delivery is kept, beyond those of a result, until the job's next message comes.
UNTIL_THE_END = 30 * 86400


@dataclass(frozen=True)
class JobEvent:
    """Holds an entry of the stream of all ends, in which what webhooks are told beside ends is, too."""

    entry: str
    job_id: str
    state: State  #: of the job then
    number: int  #: of the message among those that the job's webhook is told; 0 where it is not told of this
    segment: int | None  #: number of the film's segment that is done

    @classmethod
    def read(cls, entry: str, fields: Mapping[str, str]) -> Self:
        segment = fields.get("segment")
        return cls(
            entry=entry,
            job_id=fields.get("job", ""),
            state=fields.get("state", ""),  # type: ignore[arg-type]
            number=int(fields.get("told", 1)),  # versions before told ends alone
            segment=int(segment) if segment else None,
        )


@dataclass(frozen=True)
class Begun:
    """Holds an attempt at a delivery that this process makes."""

    job_id: str
    attempt: int  #: its number, from 1
    message_id: str
    url: str
    body: str
    type: str  #: of the message
    owner: str  #: id of the key that sent the job; empty without one

    @property
    def is_end(self) -> bool:
        """Returns whether the job ended; of versions before, all messages tell that."""
        return self.type not in ("job.started", "job.segment")


class DeliveryStore:
    """Reads and writes deliveries, in an event loop; keeps those that are over ``keep_seconds``.

    Raises QueueUnavailable.
    """

    def __init__(self, server: Redis, keys: Keys, keep_seconds: float) -> None:
        self._server, self._keys, self._keep_seconds = server, keys, keep_seconds
        self._schedule, self._begin, self._settle = (
            server.register_script(script_of(name)) for name in ("schedule", "begin", "settle")
        )

    async def events(self, block_ms: int) -> list[JobEvent]:
        """Reads events that are not dealt with; waits for one if there is none."""
        try:
            left: Any = await self._server.xautoclaim(
                self._keys.ended, GROUP, CONSUMER, STALE_MS, count=AT_ONCE
            )
            ends = left[1]
            if not ends:
                reply: Any = await self._server.xreadgroup(
                    GROUP, CONSUMER, {self._keys.ended: ">"}, count=AT_ONCE, block=block_ms
                )
                ends = [entry for _, entries in reply or () for entry in entries]
        except redis.ResponseError as error:
            if "NOGROUP" not in str(error):
                raise
            await self._make_group()
            return []
        return [JobEvent.read(entry, fields) for entry, fields in ends if fields]

    async def _make_group(self) -> None:
        """Makes the group, which reads from the start: earlier ends are read too."""
        try:
            await self._server.xgroup_create(self._keys.ended, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def schedule(self, event: JobEvent, url: str | None, message: Message | None) -> bool:
        """Makes the delivery of a message, and forgets the event; both once, however many processes try.

        Args:
            event: what it tells of.
            url: the job's webhook; None where it has none.
            message: to be sent there, behind the job's earlier ones; None where it cannot be written.

        Returns:
            True where this call made it.
        """
        fields = "" if url is None else "[]"
        if url is not None and message is not None:
            fields = json.dumps(["id", message.id, "type", message.type, "url", url, "body", message.body])
        keys = [self._keys.ended, self._keys.deliveries, self._keys.delivery(event.job_id)]
        args: list[str | int] = [GROUP, event.entry, event.job_id, event.number, fields, UNTIL_THE_END]
        return bool(await self._schedule(keys=keys, args=args))

    async def begin(self, most: int, under_way: Mapping[str, int]) -> list[Begun]:
        """Begins attempts at deliveries that are due, each by one process alone, of each owner by turns.

        Args:
            most: that are begun.
            under_way: how many of each owner this process has not settled yet.
        """
        args: list[str | int] = [self._keys.delivery(""), LEASE_MS, most, json.dumps(under_way), MOST_OF_ONE]
        begun: Any = await self._begin(keys=[self._keys.deliveries, f"{self._keys.index}:owners"], args=args)
        return [Begun(job, int(attempt), *rest) for job, attempt, *rest in begun]

    async def settle(
        self, begun: Begun, state: DeliveryState, pause: float, attempt: AttemptDocument
    ) -> bool:
        """Notes how an attempt went.

        Args:
            begun: the attempt.
            state: ``pending``: it is to be tried again.
            pause: seconds until then.
            attempt: for the log.

        Returns:
            False where the attempt took longer than its lease, and is another process's now.
        """
        keys = [
            self._keys.deliveries,
            self._keys.delivery(begun.job_id),
            self._keys.delivery_attempts(begun.job_id),
            self._keys.counts,
        ]
        line = json.dumps({**attempt.model_dump(mode="json"), "id": begun.message_id, "type": begun.type})
        keep = self._keep_seconds + (0 if begun.is_end else UNTIL_THE_END)
        args: list[str | int | float] = [
            begun.job_id, begun.attempt, state, round(pause * 1000), line, KEPT_ATTEMPTS, keep,
        ]  # fmt: skip
        return bool(await self._settle(keys=keys, args=args))

    async def deliveries(self, job_id: str) -> list[DeliveryDocument]:
        """Returns what of a job was told, or is being told; empty for nothing. Raises RecordUnreadable."""
        keys = self._keys
        async with self._server.pipeline(transaction=True) as pipe:
            pipe.hgetall(keys.delivery(job_id))
            pipe.lrange(keys.delivery_attempts(job_id), 0, -1)
            pipe.zscore(keys.deliveries, job_id)
            kept, attempts, due = await pipe.execute()
        try:
            return _documents(kept, [json.loads(line) for line in attempts], due) if kept.get("id") else []
        except (KeyError, ValueError) as error:  # a later version wrote it
            raise RecordUnreadable(f"The delivery of job {job_id} cannot be read.") from error

    async def close(self) -> None:
        await self._server.aclose()


def script_of(name: str) -> str:
    """Reads a script, with what stands before all of them."""
    folder = Path(__file__).parent / "lua"
    return (folder / "common.lua").read_text() + (folder / f"{name}.lua").read_text()


def _documents(
    kept: Mapping[str, str], attempts: Sequence[Mapping[str, Any]], due: float | None
) -> list[DeliveryDocument]:
    """Sorts attempts by their messages, the last of which is ``kept``; in records of before all are its."""
    last, documents = kept["id"], []
    types = {each.get("id", last): each.get("type", kept["type"]) for each in attempts}
    for message_id, kind in {**types, last: kept["type"]}.items():
        tries = [each for each in attempts if each.get("id", message_id) == message_id]
        is_last, ended = message_id == last, "failed" if tries and tries[-1]["error"] else "delivered"
        document = DeliveryDocument(
            webhook_id=message_id,
            type=kind,
            host=urlsplit(kept["url"]).hostname or "",
            state=kept["state"] if is_last else ended,
            next_attempt_at=rfc3339(due / 1000) if is_last and due is not None else None,
            attempts=[AttemptDocument.model_validate(each) for each in tries],
        )
        documents.append(document)
    return documents
