"""Keeps deliveries in Redis: what is due when, what was tried, how it went. API processes share it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import redis
from redis.asyncio import Redis

from app.documents.deliveries import AttemptDocument, DeliveryDocument, DeliveryState
from app.documents.job import rfc3339
from app.errors import RecordUnreadable
from app.jobs.job import Job, Keys
from app.jobs.redis_client import unavailable_if_away
from app.webhooks.messages import Message

GROUP = "webhooks"  #: consumer group of the stream of all ends
CONSUMER = "api"  #: all processes read as one, so that none leaves a consumer behind
STALE_MS = 30_000  #: after which an end that a process has read and not dealt with is read by another
AT_ONCE = 32  #: ends that are read at once
LEASE_MS = 60_000  #: after which an attempt whose process died is followed by the next; far above Sender's
MOST_OF_ONE = 4  #: attempts of one owner that are under way at once in a process
KEPT_ATTEMPTS = 50


@dataclass(frozen=True)
class EndOfJob:
    """Holds an entry of the stream of all ends."""

    entry: str
    job_id: str
    state: str


@dataclass(frozen=True)
class Begun:
    """Holds an attempt at a delivery that this process makes."""

    job_id: str
    attempt: int  #: its number, from 1
    message_id: str
    url: str
    body: str
    owner: str  #: id of the key that sent the job; empty without one


class DeliveryStore:
    """Reads and writes deliveries, in an event loop; keeps those that are over ``keep_seconds``.

    Raises QueueUnavailable.
    """

    def __init__(self, server: Redis, keys: Keys, keep_seconds: float) -> None:
        self._server, self._keys, self._keep_seconds = server, keys, keep_seconds
        folder = Path(__file__).parent / "lua"
        self._schedule, self._begin, self._settle = (
            server.register_script((folder / f"{name}.lua").read_text())
            for name in ("schedule", "begin", "settle")
        )

    async def ended(self, block_ms: int) -> list[EndOfJob]:
        """Reads ends that are not dealt with; waits for one if there is none."""
        with unavailable_if_away():
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
        return [
            EndOfJob(entry, fields.get("job", ""), fields.get("state", ""))
            for entry, fields in ends
            if fields
        ]

    async def _make_group(self) -> None:
        """Makes the group, which reads from the start: earlier ends are read too."""
        try:
            await self._server.xgroup_create(self._keys.ended, GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise

    async def schedule(self, ended: EndOfJob, job: Job | None, message: Message | None) -> bool:
        """Makes the delivery of an end, and forgets the end; both once, however many processes try.

        Args:
            ended: the end.
            job: whose it is.
            message: to be sent to the job's webhook; None where there is no webhook.

        Returns:
            True where this call made it.
        """
        fields: list[str] = []
        if job is not None and job.submission.webhook and message is not None:
            delivery = {
                "id": message.id,
                "type": message.type,
                "url": job.submission.webhook,
                "body": message.body,
            }
            fields = [part for pair in delivery.items() for part in pair]
        keys = [self._keys.ended, self._keys.deliveries, self._keys.delivery(ended.job_id)]
        with unavailable_if_away():
            is_new = await self._schedule(keys=keys, args=[GROUP, ended.entry, ended.job_id, *fields])
        return bool(is_new)

    async def begin(self, most: int, under_way: Mapping[str, int]) -> list[Begun]:
        """Begins attempts at deliveries that are due, each by one process alone, of each owner by turns.

        Args:
            most: that are begun.
            under_way: how many of each owner this process has not settled yet.
        """
        args: list[str | int] = [self._keys.delivery(""), LEASE_MS, most, json.dumps(under_way), MOST_OF_ONE]
        with unavailable_if_away():
            begun: Any = await self._begin(
                keys=[self._keys.deliveries, f"{self._keys.index}:owners"], args=args
            )
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
        line = attempt.model_dump_json()
        args: list[str | int | float] = [
            begun.job_id, begun.attempt, state, round(pause * 1000), line, KEPT_ATTEMPTS, self._keep_seconds,
        ]  # fmt: skip
        with unavailable_if_away():
            return bool(await self._settle(keys=keys, args=args))

    async def deliveries(self, job_id: str) -> list[DeliveryDocument]:
        """Returns the delivery of a job's end; empty where there is none. Raises RecordUnreadable."""
        keys = self._keys
        with unavailable_if_away():
            async with self._server.pipeline(transaction=True) as pipe:
                pipe.hgetall(keys.delivery(job_id))
                pipe.lrange(keys.delivery_attempts(job_id), 0, -1)
                pipe.zscore(keys.deliveries, job_id)
                kept, attempts, due = await pipe.execute()
        try:
            return [_document(kept, attempts, due)] if kept else []
        except (KeyError, ValueError) as error:  # a later version wrote it
            raise RecordUnreadable(f"The delivery of job {job_id} cannot be read.") from error

    async def close(self) -> None:
        await self._server.aclose()


def _document(kept: Mapping[str, str], attempts: list[str], due: float | None) -> DeliveryDocument:
    return DeliveryDocument(
        webhook_id=kept["id"],
        type=kept["type"],
        host=urlsplit(kept["url"]).hostname or "",
        state=kept["state"],
        next_attempt_at=None if due is None else rfc3339(due / 1000),
        attempts=[AttemptDocument.model_validate(json.loads(line)) for line in attempts],
    )
