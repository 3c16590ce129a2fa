"""Workers say who they are and what they can do; the API answers ``/models`` and ``/readyz`` from that.

An advertisement lives for a few seconds and is renewed with the lease, so what is listed is alive.
"""

from __future__ import annotations

import time
from typing import Any

import redis
import structlog
from pydantic import ValidationError

from app.advertisement import CaptionerInfo, WorkerInfo
from app.default_captioner import default_captioner
from app.jobs import Keys
from app.menu import Menu
from app.redis_client import unavailable_if_away

log = structlog.get_logger(__name__)

TIME_TO_LIVE = 10.0  #: seconds without a word after which a worker is off the list


class Registry:
    """Reads and writes advertisements. Raises QueueUnavailable."""

    def __init__(
        self, server: redis.Redis, keys: Keys | None = None, time_to_live: float = TIME_TO_LIVE
    ) -> None:
        self._server, self._keys, self._ttl = server, keys or Keys(), time_to_live

    def advertise(self, info: WorkerInfo) -> None:
        """Lists a worker for ``time_to_live`` seconds more."""
        with unavailable_if_away(), self._server.pipeline() as pipe:
            if self._server.type(self._keys.workers) not in ("zset", "none"):
                pipe.delete(self._keys.workers)  # whatever it is: all live workers say again who they are
            pipe.set(self._keys.worker(info.name), info.model_dump_json(), px=round(self._ttl * 1000))
            pipe.zadd(self._keys.workers, {info.name: time.time()})
            pipe.execute()

    def withdraw(self, name: str) -> None:
        """Takes a worker off the list at once."""
        with unavailable_if_away(), self._server.pipeline() as pipe:
            pipe.delete(self._keys.worker(name))
            pipe.zrem(self._keys.workers, name)
            pipe.execute()

    def workers(self) -> list[WorkerInfo]:
        """The workers that live, by name; names whose advertisement has lapsed are dropped.

        An advertisement that this version cannot read counts for nothing and harms no other.
        """
        with unavailable_if_away():
            if self._server.type(self._keys.workers) != "zset":
                return []
            names: Any = self._server.zrange(self._keys.workers, 0, -1)
            if not names:
                return []
            texts: Any = self._server.mget([self._keys.worker(name) for name in names])
            lapsed = [name for name, text in zip(names, texts, strict=True) if text is None]
            if lapsed:
                self._server.zrem(self._keys.workers, *lapsed)
        found = (_readable(name, text) for name, text in zip(names, texts, strict=True) if text is not None)
        return sorted((info for info in found if info is not None), key=lambda worker: worker.name)

    def is_ready(self) -> bool:
        """Some worker could take a job now."""
        return any(worker.is_ready for worker in self.workers())

    def captioners(self) -> dict[str, CaptionerInfo]:
        """Every captioner that some live worker has."""
        return {info.name: info for worker in self.workers() for info in worker.captioners}

    def menu(self) -> Menu:
        """What may be chosen of live workers; the default is the first one's that has loaded its models."""
        workers = self.workers()
        infos = {info.name: info for worker in workers for info in worker.captioners}
        default = next((worker.default for worker in workers if worker.default), None)
        return Menu(infos.values(), default or default_captioner(infos.values()))


def _readable(name: str, text: str) -> WorkerInfo | None:
    try:
        return WorkerInfo.model_validate_json(text)
    except ValidationError as error:
        log.warning(
            "a worker's advertisement cannot be read", worker=name, reason=str(error.errors()[0]["msg"])
        )
        return None
