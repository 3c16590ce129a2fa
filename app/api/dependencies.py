"""Holds what every route needs: settings, jobs, blobs, the list of workers, metrics.

One for an application. Who asks is another one for each request.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Annotated, Self

from fastapi import Depends, Request
from redis.asyncio import Redis

from app.access.key_ring import KeyRing
from app.access.keys import ApiKey, KeyStore
from app.access.rates import Rates
from app.api.following.event_reader import EventReader
from app.api.metrics import Metrics
from app.api.receiving.batch_body import AT_ONCE
from app.api.receiving.sent_files import SentFiles
from app.api.receiving.upload import Room
from app.feature_cache.feature_cache import FeatureCache
from app.fetching.addresses import AllowedHosts
from app.jobs.batches import Batches
from app.jobs.blobs import Blobs
from app.jobs.idempotency import IdempotencyKeys
from app.jobs.job import Job, JobLimits, Keys, Submission
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_uploads import KeptUploads
from app.jobs.queue import waiting
from app.jobs.queue_position import QueuePositions
from app.jobs.redis_client import connect, connect_async, redis_url
from app.jobs.worker_registry import WorkerRegistry
from app.settings import Settings
from app.tracing.connection import connect_tracing
from app.tracing.spans import Tracing
from app.webhooks.deliverer import Deliverer
from app.webhooks.delivery_store import DeliveryStore
from app.webhooks.sender import Sender

PATIENCE = 1.0  #: seconds of trying again while Redis is away, before a client gets its 503
#: A server that is there and does not answer (frozen, swapped out) costs a client no more than this. Above
#: the two seconds that Redis may take to write a job to its disk.
ANSWER_SECONDS = 2.5
SENDERS = 3  #: connections to Redis of those who deliver webhooks
READERS = 4  #: connections to Redis for all who follow jobs: one waits for news, the others look things up


@dataclass(frozen=True)
class ApiDependencies:
    """Holds what routes need. Its members block: routes call them from threads."""

    settings: Settings
    jobs: Jobs
    batches: Batches
    idempotency: IdempotencyKeys
    batch_turns: asyncio.Semaphore  #: batches that may be received at a time
    registry: WorkerRegistry
    positions: QueuePositions
    events: EventReader
    blobs: Blobs
    features: FeatureCache
    room: Room
    files: SentFiles
    webhooks: Deliverer
    metrics: Metrics
    tracing: Tracing
    keys: KeyRing
    rates: Rates
    root: str = ""  #: path that this request's own addresses begin with
    base: str = ""  #: address that those in its answer begin with: scheme, host and ``root``

    @classmethod
    def connect(cls, settings: Settings) -> Self:
        """Makes the clients, without a connection yet. Raises RedisMissing where none is named or runs."""
        url, keys = redis_url(settings), Keys(settings.namespace)
        server = connect(url, PATIENCE, ANSWER_SECONDS)
        registry = WorkerRegistry(server, keys)
        positions = QueuePositions(server, keys, registry)
        ring = KeyRing(KeyStore(server, keys))
        jobs, blobs = Jobs.from_settings(server, settings), Blobs(settings.blob_url, settings.staging)
        room = Room(settings.staging, settings.min_free_bytes, KeptUploads(jobs, blobs).make_room)
        return cls(
            settings=settings,
            jobs=jobs,
            batches=Batches(jobs),
            idempotency=IdempotencyKeys(server, keys),
            batch_turns=asyncio.Semaphore(AT_ONCE),
            registry=registry,
            positions=positions,
            events=EventReader(
                connect_async(url, READERS),
                keys,
                positions,
                settings.max_connections // 2,
                settings.max_followed,
            ),
            blobs=blobs,
            features=FeatureCache(settings, blobs),
            room=room,
            files=SentFiles(settings.data / "files", room, settings.max_batch_bytes),
            webhooks=_deliverer(settings, connect_async(url, SENDERS), jobs, blobs, ring),
            metrics=Metrics(),
            tracing=connect_tracing(settings, "api"),
            keys=ring,
            rates=Rates(server, keys),
        )

    def waiting(self) -> int:
        """Counts the jobs that no worker has taken. Raises QueueUnavailable."""
        return waiting(self.jobs.server, self.jobs.keys)

    @contextmanager
    def submitting(self, job_id: str, submission: Submission) -> Iterator[Submission]:
        """Spans the submission of a job; yields what to send with it, so that its record names the span."""
        if not self.tracing.is_on:
            yield submission
            return
        with self.tracing.span("submit", {"reelword.job.id": job_id}):
            parent = self.tracing.traceparent()
            yield submission if parent is None else submission.model_copy(update={"traceparent": parent})

    def close(self) -> None:
        self.jobs.server.close()
        self.tracing.close()


def _deliverer(settings: Settings, server: Redis, jobs: Jobs, blobs: Blobs, keys: KeyRing) -> Deliverer:
    secrets = settings.webhook_secrets
    sender = Sender(secrets, AllowedHosts(settings.webhook_hosts)) if secrets else None
    return Deliverer(DeliveryStore(server, jobs.keys, settings.result_ttl), jobs, blobs, sender, keys)


@dataclass(frozen=True)
class Caller:
    """Identifies the sender of a request by its key. Where no key is needed every sender sees all jobs."""

    key: ApiKey | None = None

    @property
    def owner(self) -> str | None:
        """Names the id that its jobs are kept under."""
        return None if self.key is None else self.key.id

    @property
    def is_admin(self) -> bool:
        """Returns whether it sees the jobs of all keys."""
        return self.key is not None and self.key.allows("admin")

    @property
    def limits(self) -> JobLimits | None:
        """Returns what its jobs are limited to, for their submissions."""
        return None if self.key is None else self.key.job_limits

    def upload_limit(self, most: int) -> int:
        """Returns how many bytes a video may have, where the service takes ``most``."""
        key_limit = None if self.key is None else self.key.max_upload_bytes
        return most if key_limit is None else min(key_limit, most)

    @property
    def only(self) -> str | None:
        """Names the owner whose jobs alone this caller sees; None where it sees all."""
        return None if self.is_admin else self.owner

    def sees(self, job: Job) -> bool:
        return self.only is None or job.submission.owner == self.only


def service_of(request: Request) -> ApiDependencies:
    service: ApiDependencies = request.app.state.service
    return replace(service, root=request.scope["root_path"], base=str(request.base_url).rstrip("/"))


ServiceDep = Annotated[ApiDependencies, Depends(service_of)]


def caller_of(request: Request) -> Caller:
    caller: Caller = getattr(request.state, "caller", Caller())
    return caller


CallerDep = Annotated[Caller, Depends(caller_of)]
