"""Computes where a queued job stands: how many are before it, when it may start, who could run it.

All positions come from one snapshot of the queue (lua/snapshot.lua), which is read a few times a second
however many ask. The start is estimated from what recent jobs took: each worker is free when the jobs that
it runs are done, by their progress, and takes those that wait one by one.
"""

import heapq
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import redis

from app.jobs.job import GROUP, PRIORITIES, Job, Keys, Priority, QueuePosition
from app.jobs.queue import NOBODY
from app.jobs.redis_client import LuaScript, entry_number
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry

FRESH_SECONDS = 0.25  #: a snapshot is used so long
EXACT = 1000  #: jobs whose place is counted; of later ones only the last place is known
TELLING = 0.05  #: progress from which on it predicts how long a job still takes


@dataclass(frozen=True)
class RunningJob:
    """Holds how far a job is that some worker runs; ``elapsed`` in seconds, ``progress`` from 0 to 1."""

    worker: str
    elapsed: float
    progress: float

    def seconds_left(self, usual: float) -> float:
        """Estimates what is left by its progress, and by what is usual while that is too small."""
        if self.progress < TELLING:
            return max(0.0, usual - self.elapsed)
        return self.elapsed * (1.0 - self.progress) / self.progress


@dataclass(frozen=True)
class WaitingLine:
    """Holds one priority's stream."""

    youngest: tuple[int, int]  #: the last entry that was put in
    total: int  #: how many wait
    places: dict[str, int]  #: of each job whose place is known, from 1

    @classmethod
    def read(cls, reply: Sequence[Any]) -> Self:
        youngest, total, jobs = reply
        places = {job: number for number, job in enumerate(jobs, 1)}
        return cls(entry_number(youngest), max(int(total), len(places)), places)

    def place_of(self, job: Job) -> int:
        """Counts from 1; 0 where a worker is just taking it."""
        if (place := self.places.get(job.id)) is not None:
            return place
        if entry_number(job.entry) > self.youngest:
            return self.total + 1
        return self.total if len(self.places) < self.total else 0


@dataclass
class QueueSnapshot:
    """Holds the queue as it stood at one moment."""

    taken_at: float
    handed_back: dict[str, int]  #: places of the jobs that come before all others
    lines: dict[Priority, WaitingLine]  #: by priority
    running: list[RunningJob]
    workers: list[WorkerInfo]
    seconds_per_job: float | None  #: that one worker takes; None where unknown
    _starts: list[float] = field(default_factory=list)
    _free: list[float] | None = None

    def position_of(self, job: Job) -> QueuePosition:
        """Returns where a job stands."""
        if job.is_over:
            return QueuePosition()
        workers = sum(_can_run(worker, job) for worker in self.workers)
        if job.state == "running":
            return QueuePosition(workers=workers)
        place = self._place_of(job)
        return QueuePosition(place, self._start_of(place) if workers else None, workers)

    def _place_of(self, job: Job) -> int:
        if job.id in self.handed_back:
            return self.handed_back[job.id]
        place = self.lines[job.priority].place_of(job)
        if place == 0:
            return 1
        urgent = PRIORITIES[: PRIORITIES.index(job.priority)]
        return len(self.handed_back) + sum(self.lines[priority].total for priority in urgent) + place

    def _start_of(self, place: int) -> float | None:
        """Estimates the seconds until the job at this place starts."""
        seconds = self.seconds_per_job
        if seconds is None:
            return None
        if self._free is None:
            self._free = self._free_in(seconds)
        if not self._free:
            return None
        while len(self._starts) < min(place, EXACT):
            start = heapq.heappop(self._free)
            self._starts.append(start)
            heapq.heappush(self._free, start + seconds)
        beyond = max(0, place - EXACT) * seconds / len(self._free)
        return round(self._starts[min(place, EXACT) - 1] + beyond, 1)

    def _free_in(self, usual: float) -> list[float]:
        """Lists, for each worker that takes jobs, the seconds until it is free; a heap."""
        left = {worker.name: 0.0 for worker in self.workers if worker.is_ready}
        for job in self.running:
            if job.worker in left:
                left[job.worker] = max(left[job.worker], job.seconds_left(usual))
        free = list(left.values())
        heapq.heapify(free)
        return free


@dataclass(eq=False)
class QueuePositions:
    """Computes positions from a snapshot at most ``fresh_seconds`` old. Safe to share between threads."""

    server: redis.Redis  #: the connection to Redis
    keys: Keys  #: names in Redis
    registry: WorkerRegistry  #: the live workers
    fresh_seconds: float = FRESH_SECONDS  #: how long a snapshot is used

    def __post_init__(self) -> None:
        self._script = LuaScript(self.server, "snapshot")
        self._guard = threading.Lock()
        self._last: QueueSnapshot | None = None

    def of(self, job: Job) -> QueuePosition:
        """Returns where a job stands. Raises QueueUnavailable."""
        return QueuePosition() if job.is_over else self.snapshot().position_of(job)

    def snapshot(self) -> QueueSnapshot:
        """Reads the queue, or returns what was read a moment ago. Raises QueueUnavailable."""
        with self._guard:
            last = self._last
            if last is None or time.monotonic() - last.taken_at >= self.fresh_seconds:
                last = self._last = self._read()
            return last

    def _read(self) -> QueueSnapshot:
        keys = self.keys
        streams = [keys.stream(priority) for priority in PRIORITIES]
        reply: Any = self._script(
            [*streams, keys.recent_runs, keys.clock, keys.dead], [GROUP, NOBODY, EXACT, keys.job("")]
        )
        handed_back, lines, running, runs = reply
        workers = self.registry.workers()
        return QueueSnapshot(
            taken_at=time.monotonic(),
            handed_back={job: number for number, job in enumerate(handed_back, 1)},
            lines={
                priority: WaitingLine.read(line) for priority, line in zip(PRIORITIES, lines, strict=True)
            },
            running=[
                RunningJob(worker, float(elapsed) / 1000, float(progress))
                for worker, elapsed, progress in running
            ],
            workers=workers,
            seconds_per_job=seconds_per_job(runs) or _measured_at_start(workers),
        )


def seconds_per_job(runs: Sequence[str]) -> float | None:
    """Returns how long one worker takes for a job: the seconds in which it had any, divided by how many.

    Jobs that ran together share their seconds. A run is ``begin end worker``, in milliseconds of one clock;
    None where there are none.
    """
    by_worker: dict[str, list[tuple[int, int]]] = {}
    for run in runs:
        begin, end, worker = run.split(" ", 2)
        by_worker.setdefault(worker, []).append((int(begin), int(end)))
    busy = sum(_covered(sorted(spans)) for spans in by_worker.values())
    return busy / len(runs) / 1000 if runs else None


def _covered(spans: Sequence[tuple[int, int]]) -> int:
    """Measures what spans cover together; they are sorted."""
    covered, until = 0, 0
    for begin, end in spans:
        covered += max(0, end - max(begin, until))
        until = max(until, end)
    return covered


def _measured_at_start(workers: Sequence[WorkerInfo]) -> float | None:
    """Finds what a job of the default captioner took when its worker started: before any has ended."""
    measured = (
        info.seconds for worker in workers for info in worker.captioners if info.name == worker.default
    )
    return next((seconds for seconds in measured if seconds is not None), None)


def _can_run(worker: WorkerInfo, job: Job) -> bool:
    """Returns whether a worker has what the job's captioner needs; one that still loads lists nothing."""
    names = {info.name for info in worker.captioners}
    writers = job.options.choice.writers if job.options.choice else ()
    return not names or names.issuperset(writers)
