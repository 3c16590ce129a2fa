"""Holds what every route needs: settings, jobs, blobs, the list of workers, metrics.

One for an application. Who asks is another one for each request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from app.api.following.event_reader import EventReader
from app.api.metrics import Metrics
from app.api.receiving.batch_body import BatchTurns
from app.api.receiving.disk_space import Room
from app.feature_cache.feature_cache import FeatureCache
from app.jobs.batches import Batches
from app.jobs.blobs import Blobs
from app.jobs.job import Job, Keys
from app.jobs.job_store import Jobs
from app.jobs.kept_uploads import KeptUploads
from app.jobs.queue import waiting
from app.jobs.queue_position import QueuePositions
from app.jobs.redis_client import connect, connect_async, redis_url
from app.jobs.worker_registry import WorkerRegistry
from app.settings import Settings

PATIENCE = 1.0  #: seconds of trying again while Redis is away, before a client gets its 503
#: A server that is there and does not answer (frozen, swapped out) costs a client no more than this. Above
#: the two seconds that Redis may take to write a job to its disk.
ANSWER_SECONDS = 2.5
READERS = 4  #: connections to Redis for all who follow jobs: one waits for news, the others look things up


@dataclass(frozen=True)
class ApiDependencies:
    """Holds what routes need. Its members block: routes call them from threads."""

    settings: Settings
    jobs: Jobs
    batches: Batches
    batch_turns: BatchTurns
    registry: WorkerRegistry
    positions: QueuePositions
    events: EventReader
    blobs: Blobs
    features: FeatureCache
    room: Room
    metrics: Metrics

    @classmethod
    def connect(cls, settings: Settings) -> ApiDependencies:
        """Makes the clients; speaks to nobody yet.

        Raises RedisMissing where no server is named or runs in the data folder.
        """
        url, keys = redis_url(settings), Keys(settings.namespace)
        server = connect(url, PATIENCE, ANSWER_SECONDS)
        registry = WorkerRegistry(server, keys)
        positions = QueuePositions(server, keys, registry)
        jobs, blobs = Jobs.from_settings(server, settings), Blobs(settings.blob_url, settings.staging)
        return cls(
            settings=settings,
            jobs=jobs,
            batches=Batches(jobs),
            batch_turns=BatchTurns(),
            registry=registry,
            positions=positions,
            events=EventReader(connect_async(url, READERS), keys, positions, settings.max_connections // 2),
            blobs=blobs,
            features=FeatureCache(settings, blobs),
            room=Room(settings.staging, settings.min_free_bytes, KeptUploads(jobs, blobs).make_room),
            metrics=Metrics(),
        )

    def waiting(self) -> int:
        """Counts the jobs that no worker has taken. Raises QueueUnavailable."""
        return waiting(self.jobs.server, self.jobs.keys)

    def close(self) -> None:
        self.jobs.server.close()


@dataclass(frozen=True)
class Caller:
    """Says who asks, as the API's keys have it. Where no key is needed everybody is the same nobody, who sees
    all jobs.

    owner: id of the key. is_admin: it sees the jobs of all keys.
    """

    owner: str | None = None
    is_admin: bool = False

    @property
    def only(self) -> str | None:
        """Names the owner whose jobs alone this caller sees; None where it sees all."""
        return None if self.is_admin else self.owner

    def sees(self, job: Job) -> bool:
        return self.only is None or job.submission.owner == self.only


def service_of(request: Request) -> ApiDependencies:
    service: ApiDependencies = request.app.state.service
    return service


ServiceDep = Annotated[ApiDependencies, Depends(service_of)]


def caller_of(request: Request) -> Caller:
    caller: Caller = getattr(request.state, "caller", Caller())
    return caller


def owner_of(request: Request) -> str | None:
    return caller_of(request).owner


CallerDep = Annotated[Caller, Depends(caller_of)]
OwnerDep = Annotated[str | None, Depends(owner_of)]
