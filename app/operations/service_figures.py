"""Reads the figures of ``/metrics`` that all API processes share: queue, ended jobs, workers.

The scripts of app/jobs/lua count each event once, in the step in which it happens (``count`` in common.lua),
so that it does not matter how many API processes there are, which of them is asked, or how often. Whatever
stands now (who waits, since when) is read from the streams themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from app.jobs.dead_letters import DeadLetters
from app.jobs.job import GROUP, PRIORITIES, Keys
from app.jobs.queue import NOBODY, read_group
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry

#: Upper bounds of the histograms' buckets, in seconds, as lua/common.lua has them.
BOUNDS = ("0.05", "0.1", "0.25", "0.5", "1", "2.5", "5", "10", "30", "60", "150", "300", "900", "3600")
ENDS = ("succeeded", "failed", "canceled")  #: states that a job may end in; ``expired`` follows one of them


@dataclass(frozen=True)
class QueueFigures:
    """Describes how one priority's queue stands."""

    waiting: int = 0  #: jobs that no worker has
    in_hand: int = 0  #: jobs that some worker has
    oldest: float = 0.0  #: seconds since the longest waiting job was put in; 0 where none waits


@dataclass(frozen=True)
class SecondsFigures:
    """Holds one histogram: how many measurements fell below each bound, each counted once, and their sum."""

    buckets: Mapping[str, int]
    total: float

    @property
    def cumulative(self) -> list[tuple[str, float]]:
        """Adds the buckets up, as Prometheus has them; of a bound that is no longer ours, into the next."""
        bounds = [*map(float, BOUNDS), float("inf")]
        buckets = [(float(bound), count) for bound, count in self.buckets.items()]
        names = (*BOUNDS, "+Inf")
        return [
            (name, float(sum(count for each, count in buckets if each <= bound)))
            for name, bound in zip(names, bounds, strict=True)
        ]


@dataclass(frozen=True)
class Counts:
    """Holds what the scripts have counted since this Redis is in use, by names such as ``ended:failed``."""

    numbers: Mapping[str, int]

    def of(self, name: str) -> int:
        return self.numbers.get(name, 0)

    def below(self, prefix: str) -> dict[str, int]:
        """Lists the counts whose names begin so, by the rest of their names."""
        names = sorted(name for name in self.numbers if name.startswith(prefix))
        return {name.removeprefix(prefix): self.numbers[name] for name in names}

    def kept(self, state: str) -> int:
        """Counts the jobs that stand in this state now: others have expired, or were sent in again."""
        return max(0, self.of(f"ended:{state}") - self.of(f"left:{state}"))

    @property
    def stages(self) -> list[str]:
        return list(self.below("ms:"))

    def seconds(self, stage: str) -> SecondsFigures:
        """Returns the histogram of the seconds of one stage of jobs."""
        return SecondsFigures(self.below(f"seconds:{stage}:"), self.of(f"ms:{stage}") / 1000)


@dataclass(frozen=True)
class ServiceFigures:
    """Holds all figures of the service."""

    queues: Mapping[str, QueueFigures]  #: by priority
    counts: Counts
    workers: list[WorkerInfo]  #: those that live
    dead: int  #: dead letters
    deliveries: int = 0  #: webhooks that are to be sent


def read_figures(server: redis.Redis, keys: Keys, registry: WorkerRegistry) -> ServiceFigures:
    """Reads everything. Raises QueueUnavailable.

    Args:
        registry: who lists the workers.
    """
    return ServiceFigures(
        queues={priority: _read_queue(server, keys.stream(priority)) for priority in PRIORITIES},
        counts=read_counts(server, keys),
        workers=registry.workers(),
        dead=DeadLetters(server, keys.dead).count(),
        deliveries=server.zcard(keys.deliveries) if server.type(keys.deliveries) == "zset" else 0,
    )


def read_counts(server: redis.Redis, keys: Keys) -> Counts:
    """Reads what the scripts have counted. Raises QueueUnavailable."""
    is_there = server.type(keys.counts) == "hash"
    numbers: Any = server.hgetall(keys.counts) if is_there else {}
    return Counts({name: int(value) for name, value in numbers.items()})


def _read_queue(server: redis.Redis, stream: str) -> QueueFigures:
    if server.type(stream) != "stream":
        return QueueFigures()
    delivered, in_hand = read_group(server, stream)
    total = int(server.xlen(stream))
    entries = _oldest_entries(server, stream, delivered)
    seconds, micro = server.time()
    ages = [seconds + micro / 1e6 - int(entry.partition("-")[0]) / 1000 for entry in entries]
    return QueueFigures(max(0, total - in_hand), in_hand, max(0.0, *ages, 0.0))


def _oldest_entries(server: redis.Redis, stream: str, delivered: str | None) -> list[str]:
    """Lists the oldest entry that no worker was given yet, and the oldest that was handed back."""
    fresh: Any = server.xrange(stream, min="-" if delivered is None else f"({delivered}", count=1)
    returned: Any = (
        [] if delivered is None else server.xpending_range(stream, GROUP, "-", "+", 1, consumername=NOBODY)
    )
    return [*(str(entry) for entry, _ in fresh), *(str(each["message_id"]) for each in returned)]
