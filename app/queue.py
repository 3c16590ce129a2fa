"""Where waiting jobs come from: a Redis Streams consumer group, one stream a priority.

A message carries a job's id and nothing else. Three sources, in this order: entries whose worker fell silent
(idle longer than the lease; before anything new, so that a backlog delays no recovery), new entries by
priority, and, where there is nothing, the next entry that arrives.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import redis

from app.jobs import GROUP, Keys
from app.redis_client import BLOCK_SECONDS, unavailable_if_away
from app.states import PRIORITIES, Priority

RECOVERY_INTERVAL = 0.5  #: seconds between looks for abandoned entries
FORGOTTEN_AFTER_MS = 3600 * 1000  #: a consumer without entries that has been away this long is removed


@dataclass(frozen=True)
class Offer:
    """An entry read from a stream; the job's record decides whether it may be run.

    is_recovered: another worker had it, and may have died of it.
    """

    job_id: str
    entry: str
    priority: Priority
    is_recovered: bool


class Queue:
    """One worker's end of the queue.

    worker: its name, the consumer's name on the server. lease: seconds.
    """

    def __init__(self, server: redis.Redis, worker: str, *, lease: float, keys: Keys | None = None) -> None:
        self._server, self._worker, self._keys = server, worker, keys or Keys()
        self._lease_ms = round(lease * 1000)
        self._looked_at = 0.0
        self._leftover: list[Offer] = []
        self._streams = {self._keys.stream(priority): priority for priority in PRIORITIES}

    def open(self) -> None:
        """Makes the groups that are not there yet and removes consumers long gone."""
        ensure_groups(self._server, self._keys)
        with unavailable_if_away():
            for stream in self._streams:
                for consumer in self._consumers(stream):
                    if consumer["pending"] == 0 and consumer["idle"] > FORGOTTEN_AFTER_MS:
                        self._server.xgroup_delconsumer(stream, GROUP, consumer["name"])

    def take(self, count: int, block: float = BLOCK_SECONDS) -> list[Offer]:
        """Up to ``count`` offers; none where nothing arrives within ``block`` seconds (0: does not wait).

        A recovered offer comes alone. Raises QueueUnavailable.
        """
        with unavailable_if_away():
            try:
                return self._recovered() or self._new(count) or self._next(count, block)
            except redis.ResponseError as error:
                if "NOGROUP" not in str(error):
                    raise
                ensure_groups(self._server, self._keys)  # somebody emptied the server
                return []

    def _recovered(self) -> list[Offer]:
        if time.monotonic() - self._looked_at < RECOVERY_INTERVAL:
            return []
        for stream, priority in self._streams.items():
            claimed: Any = self._server.xautoclaim(stream, GROUP, self._worker, self._lease_ms, count=1)
            if claimed[1]:
                return _offers(claimed[1], priority, is_recovered=True)
        self._looked_at = time.monotonic()  # only when all is recovered: the next one is looked for at once
        return []

    def _new(self, count: int) -> list[Offer]:
        if self._leftover:
            taken, self._leftover = self._leftover[:count], self._leftover[count:]
            return taken
        for stream in self._streams:
            if found := self._read([stream], count, None):
                return found
        return []

    def _next(self, count: int, block: float) -> list[Offer]:
        if block <= 0:
            return []
        found = self._read(list(self._streams), count, max(1, round(block * 1000)))
        self._leftover = found[count:]  # entries of two priorities arrived in one moment
        return found[:count]

    def _read(self, streams: Sequence[str], count: int, block_ms: int | None) -> list[Offer]:
        wanted: Any = dict.fromkeys(streams, ">")
        reply: Any = self._server.xreadgroup(GROUP, self._worker, wanted, count=count, block=block_ms)
        return [
            offer
            for stream, entries in reply
            for offer in _offers(entries, self._streams[stream], is_recovered=False)
        ]

    def close(self) -> None:
        """Takes this consumer off the server, unless entries are still its own."""
        with unavailable_if_away():
            for stream in self._streams:
                if any(c["name"] == self._worker and c["pending"] == 0 for c in self._consumers(stream)):
                    self._server.xgroup_delconsumer(stream, GROUP, self._worker)

    def _consumers(self, stream: str) -> list[dict[str, Any]]:
        consumers: Any = self._server.xinfo_consumers(stream, GROUP)
        return list(consumers)


def ensure_groups(server: redis.Redis, keys: Keys) -> None:
    """Groups read from the stream's start, so that jobs accepted before the first worker are found."""
    for priority in PRIORITIES:
        try:
            with unavailable_if_away():
                server.xgroup_create(keys.stream(priority), GROUP, id="0", mkstream=True)
        except redis.ResponseError as error:
            if "BUSYGROUP" not in str(error):
                raise


def waiting(server: redis.Redis, keys: Keys | None = None) -> int:
    """Jobs that no worker has taken. Raises QueueUnavailable."""
    keys = keys or Keys()
    total = 0
    with unavailable_if_away():
        for priority in PRIORITIES:
            stream = keys.stream(priority)
            if server.exists(stream):
                total += int(server.xlen(stream)) - _pending(server, stream)
    return max(total, 0)


def _pending(server: redis.Redis, stream: str) -> int:
    groups: Any = server.xinfo_groups(stream)
    return sum(int(group["pending"]) for group in groups)


def _offers(entries: Sequence[Any], priority: Priority, *, is_recovered: bool) -> list[Offer]:
    return [Offer(fields["job"], entry, priority, is_recovered) for entry, fields in entries]
