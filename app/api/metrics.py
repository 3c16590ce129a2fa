"""Counts for Prometheus what this API process does: requests, uploads, problems, and what it takes itself.

Every application has its own registry, so that two in one process do not add up. What all API processes share
is in app/api/job_metrics.py.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from app.api.job_metrics import registry_of
from app.operations.service_figures import ServiceFigures

MEDIA_TYPE = CONTENT_TYPE_LATEST
KIB, MIB = 1024, 1024**2


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
        """Writes all of it in Prometheus's text format.

        figures: those that all API processes share; None where Redis does not answer.
        """
        return generate_latest(self.registry) + generate_latest(registry_of(figures))
