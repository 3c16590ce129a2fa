"""Counts for Prometheus: requests and uploads as they happen, jobs and workers as they stand.

Every application has its own registry, so that two in one process do not add up.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from app.jobs.worker_registry import WorkerInfo

MEDIA_TYPE = CONTENT_TYPE_LATEST
KIB, MIB = 1024, 1024**2


class Metrics:
    """The service's counters, and gauges that are set when they are asked for."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "reelword_requests_total", "Answers sent", ["method", "route", "status"], registry=self.registry
        )
        self.request_seconds = Histogram(
            "reelword_request_seconds", "Time to an answer", ["method", "route"], registry=self.registry
        )
        self.upload_bytes = Histogram(
            "reelword_upload_bytes",
            "Sizes of accepted videos",
            buckets=[64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB, 256 * MIB, 1024 * MIB],
            registry=self.registry,
        )
        self.refused = Counter(
            "reelword_problems_total", "Problems answered with", ["code"], registry=self.registry
        )
        self._waiting = Gauge(
            "reelword_jobs_waiting", "Jobs that no worker has taken", registry=self.registry
        )
        self._dead = Gauge(
            "reelword_dead_letters", "Jobs and values that could not be read", registry=self.registry
        )
        self._workers = Gauge("reelword_workers", "Live workers", ["ready"], registry=self.registry)
        self._restarts = Gauge(
            "reelword_engine_restarts", "Engines lost by live workers", ["worker"], registry=self.registry
        )
        self._redis_up = Gauge("reelword_redis_up", "Redis answers (1) or not (0)", registry=self.registry)

    def observe_queue(self, waiting: int, workers: Iterable[WorkerInfo], dead: int) -> None:
        """Sets the gauges of jobs and workers.

        Args:
            waiting: jobs that no worker has taken.
            workers: those that live.
            dead: dead letters.
        """
        listed = list(workers)
        ready = sum(worker.is_ready for worker in listed)
        self._redis_up.set(1)
        self._waiting.set(waiting)
        self._dead.set(dead)
        self._workers.labels(ready="true").set(ready)
        self._workers.labels(ready="false").set(len(listed) - ready)
        self._restarts.clear()
        for worker in listed:
            self._restarts.labels(worker=worker.name).set(worker.engine_restarts)

    def observe_queue_away(self) -> None:
        """Tells that Redis does not answer."""
        self._redis_up.set(0)

    def exposition(self) -> bytes:
        """Writes all of it in Prometheus's text format."""
        return generate_latest(self.registry)
