"""Lists live workers: they publish what they can do, and the API answers ``/models`` and ``/readyz`` from it.

An advertisement lives for a few seconds and is renewed with the lease, so what is listed is alive.
"""

import time
from typing import Any

import redis
import structlog
from pydantic import BaseModel, ValidationError

from app.jobs.captioner_choice import CaptionerChoices
from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job import Keys
from app.jobs.redis_client import LuaScript

log = structlog.get_logger(__name__)

TIME_TO_LIVE = 10.0  #: seconds without a word after which a worker is off the list
FEW = 32  #: workers that are read anew each time; a longer list is read once in FRESH_SECONDS
FRESH_SECONDS = 1.0


class WorkerInfo(BaseModel, frozen=True):
    """Describes a worker."""

    name: str
    pid: int
    host: str
    version: str
    is_ready: bool  #: its models are loaded and its engine lives
    device: str
    started_at: float
    captioners: list[CaptionerInfo]
    default: str | None = None  #: captioner of jobs that name none
    engine_restarts: int = 0
    engine_started_at: float | None = None  #: of the one that lives
    #: Bytes in RAM by process (worker, decoder, engine), as far as the system has them.
    memory: dict[str, int] = {}


class WorkerRegistry:
    """Reads and writes advertisements, which last ``time_to_live`` seconds. Raises QueueUnavailable."""

    def __init__(
        self, server: redis.Redis, keys: Keys | None = None, time_to_live: float = TIME_TO_LIVE
    ) -> None:
        self._server, self._keys, self._lasts_ms = server, keys or Keys(), round(time_to_live * 1000)
        self._advertise, self._listed = LuaScript(server, "advertise"), LuaScript(server, "listed")
        self._last: tuple[float, list[WorkerInfo]] = (0.0, [])

    def advertise(self, info: WorkerInfo) -> None:
        """Lists a worker for ``time_to_live`` seconds more."""
        keys = [self._keys.workers, self._keys.worker(info.name), self._keys.clock, self._keys.dead]
        self._advertise(keys, [info.name, info.model_dump_json(), self._lasts_ms])

    def withdraw(self, name: str) -> None:
        """Takes a worker off the list at once."""
        with self._server.pipeline() as pipe:
            pipe.delete(self._keys.worker(name))
            pipe.zrem(self._keys.workers, name)
            pipe.zrem(self._keys.ready_workers, name)
            pipe.execute()

    def workers(self) -> list[WorkerInfo]:
        """Lists the workers that live, by name; names whose advertisement has lapsed are dropped.

        An advertisement that this version cannot read counts for nothing and harms no other. Every submission
        asks; a list of many workers, which takes long to read, may be FRESH_SECONDS old.
        """
        read_at, workers = self._last
        if len(workers) <= FEW or time.monotonic() - read_at >= FRESH_SECONDS:
            self._last = (time.monotonic(), workers)  # other threads use the old list meanwhile
            workers = self._read()
            self._last = (time.monotonic(), workers)
        return list(workers)

    def _read(self) -> list[WorkerInfo]:
        keys = [self._keys.workers, self._keys.clock, self._keys.dead]
        reply: Any = self._listed(keys, [self._keys.worker(""), self._lasts_ms])
        infos = (_readable(name, text) for name, text in zip(reply[::2], reply[1::2], strict=True))
        return sorted((info for info in infos if info is not None), key=lambda worker: worker.name)

    def is_ready(self) -> bool:
        """Returns whether some worker could take a job now."""
        return any(worker.is_ready for worker in self.workers())

    def captioners(self) -> dict[str, CaptionerInfo]:
        """Lists every captioner that some live worker has."""
        return {info.name: info for worker in self.workers() for info in worker.captioners}

    def captioner_choices(self) -> CaptionerChoices:
        """Lists what may be chosen of live workers.

        The default is a worker's own: the first that all of them have, since anyone may take the job.
        """
        loaded = [worker for worker in self.workers() if worker.captioners]
        infos = {info.name: info for worker in loaded for info in worker.captioners}
        common = set(infos).intersection(*({info.name for info in worker.captioners} for worker in loaded))
        defaults = [worker.default for worker in loaded if worker.default]
        default = next((name for name in defaults if name in common), next(iter(defaults), None))
        return CaptionerChoices(infos.values(), default)


def _readable(name: str, text: str) -> WorkerInfo | None:
    try:
        return WorkerInfo.model_validate_json(text)
    except ValidationError as error:
        log.warning(
            "a worker's advertisement cannot be read", worker=name, reason=str(error.errors()[0]["msg"])
        )
        return None
