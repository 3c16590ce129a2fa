"""Counts for Prometheus what this API process does, and writes the figures that all API processes share.

What is its own: requests, uploads, problems, and what it takes itself. Every application has its own
registry, so that two in one process do not add up. What is shared, of queue, ended jobs and workers, is read
when it is asked for, so every API process has the same: scrape any one of them, or take the maximum of
several.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.jobs.worker_registry import WorkerInfo
from app.operations.service_figures import ENDS, Counts, QueueFigures, ServiceFigures

MEDIA_TYPE = CONTENT_TYPE_LATEST
KIB, MIB = 1024, 1024**2
#: Stages of a job as its timings name them; each has a histogram from the start, so that rates begin at 0.
STAGES = ("queue", "decode", "extract", "caption", "total")

#: What came of an attempt at a webhook, as its delivery has it and as the metric names it.
OUTCOMES = {"delivered": "delivered", "pending": "retried", "failed": "failed"}


class Metrics:
    """The counters of one application."""

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
        ProcessCollector(registry=self.registry)

    def exposition(self, figures: ServiceFigures | None) -> bytes:
        """Writes all of it in Prometheus's text format; without ``figures`` Redis does not answer."""
        shared = CollectorRegistry()
        shared.register(JobMetrics(figures))
        return generate_latest(self.registry) + generate_latest(shared)


@dataclass(frozen=True, eq=False)
class JobMetrics(Collector):
    """Makes metrics of figures."""

    figures: ServiceFigures | None  #: None where Redis does not answer

    def collect(self) -> Iterator[Metric]:
        """Yields every metric with its samples."""
        figures = self.figures
        yield GaugeMetricFamily(
            "reelword_redis_up", "Redis answers (1) or not (0)", value=float(figures is not None)
        )
        if figures is None:
            return
        yield from _queue_metrics(figures.queues, figures.counts)
        yield from _ended_metrics(figures.counts)
        yield from _worker_metrics(figures.workers)
        outcomes = {outcome: figures.counts.of(f"webhook:{counted}") for counted, outcome in OUTCOMES.items()}
        yield _counters(
            "reelword_webhook_attempts", "Attempts at webhooks, by what came of them", "outcome", outcomes
        )
        yield GaugeMetricFamily(
            "reelword_webhooks_pending", "Webhooks that are to be sent", value=figures.deliveries
        )
        yield GaugeMetricFamily(
            "reelword_dead_letters", "Jobs and values that could not be read", value=figures.dead
        )


def _queue_metrics(queues: Mapping[str, QueueFigures], counts: Counts) -> Iterator[Metric]:
    waiting = {priority: queue.waiting for priority, queue in queues.items()}
    yield GaugeMetricFamily(
        "reelword_jobs_waiting", "Jobs that no worker has taken", value=sum(waiting.values())
    )
    yield _gauges("reelword_queue_jobs", "Jobs that no worker has taken, by priority", "priority", waiting)
    oldest = {priority: queue.oldest for priority, queue in queues.items()}
    yield _gauges(
        "reelword_queue_oldest_job_seconds", "Age of the job that waits longest", "priority", oldest
    )
    running = sum(queue.in_hand for queue in queues.values())
    states = {"queued": sum(waiting.values()), "running": running} | {end: counts.kept(end) for end in ENDS}
    yield _gauges("reelword_jobs", "Jobs by the state they are in, without expired ones", "state", states)


def _ended_metrics(counts: Counts) -> Iterator[Metric]:
    yield CounterMetricFamily("reelword_jobs_accepted", "Jobs accepted", value=counts.of("accepted"))
    yield CounterMetricFamily(
        "reelword_job_retries", "Attempts that were not a job's first", value=counts.of("retried")
    )
    states = {state: counts.of(f"ended:{state}") for state in ENDS}
    yield _counters("reelword_jobs_ended", "Jobs that ended, by state", "state", states)
    yield _counters(
        "reelword_job_failures", "Jobs that failed, by the error's code", "code", counts.below("failed:")
    )
    yield _counters(
        "reelword_decode_rejects",
        "Failed jobs whose file could not be decoded",
        "code",
        counts.below("rejected:"),
    )
    seconds = HistogramMetricFamily(
        "reelword_job_stage_seconds",
        "Seconds of each stage of jobs that succeeded or failed",
        labels=["stage"],
    )
    for stage in dict.fromkeys((*STAGES, *counts.stages)):
        figures = counts.seconds(stage)
        seconds.add_metric([stage], figures.cumulative, figures.total)
    yield seconds


def _worker_metrics(workers: list[WorkerInfo]) -> Iterator[Metric]:
    ready = sum(worker.is_ready for worker in workers)
    counts = {"true": ready, "false": len(workers) - ready}
    yield _gauges("reelword_workers", "Live workers", "ready", counts)
    restarts = {worker.name: worker.engine_restarts for worker in workers}
    yield _gauges("reelword_engine_restarts", "Engines lost by live workers", "worker", restarts)
    started = {worker.name: worker.started_at for worker in workers}
    yield _gauges(
        "reelword_worker_start_time_seconds", "When the worker started, since 1970", "worker", started
    )
    engines = {each.name: each.engine_started_at for each in workers if each.engine_started_at is not None}
    yield _gauges(
        "reelword_engine_start_time_seconds", "When its engine started, since 1970", "worker", engines
    )
    memory = GaugeMetricFamily(
        "reelword_worker_resident_memory_bytes",
        "Memory of a worker's processes in RAM",
        labels=["worker", "process"],
    )
    for worker in workers:
        for process, size in sorted(worker.memory.items()):
            memory.add_metric([worker.name, process], size)
    yield memory


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    metric = GaugeMetricFamily(name, about, labels=[label])
    for labelled, value in values.items():
        metric.add_metric([labelled], value)
    return metric


def _counters(name: str, about: str, label: str, values: Mapping[str, int]) -> Metric:
    metric = CounterMetricFamily(name, about, labels=[label])
    for labelled, value in values.items():
        metric.add_metric([labelled], value)
    return metric
