"""Health of a worker's container: exit code 0 while the worker in it lives and has its models loaded.

The worker says so in Redis every half second; what it said lapses by itself when it falls silent.
"""

from __future__ import annotations

import socket
import sys

from app.jobs.job import Keys
from app.jobs.redis_client import connect, redis_url
from app.jobs.worker_registry import WorkerRegistry
from app.settings import Settings


def is_healthy(settings: Settings, host: str) -> bool:
    """Some worker on ``host`` (in a container, the only one) could take a job now."""
    with connect(redis_url(settings), patience=1) as server:
        workers = WorkerRegistry(server, Keys(settings.namespace)).workers()
    return any(worker.host == host and worker.is_ready for worker in workers)


if __name__ == "__main__":
    sys.exit(0 if is_healthy(Settings(), socket.gethostname()) else 1)
