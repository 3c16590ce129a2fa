"""A real Redis for the tests of the service: one server a run, one namespace a test; and an API on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LIMIT, LiveApi, live_api
from tests.app.scripted_worker import ScriptedWorker


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def server(redis_server: RedisServer) -> Iterator[redis.Redis]:
    with connect(redis_server.url, patience=5) as client:
        yield client


@pytest.fixture
def keys() -> Keys:
    return Keys(f"test-{uuid.uuid4().hex[:12]}")


@pytest.fixture
def jobs(server: redis.Redis, keys: Keys) -> Jobs:
    return Jobs(server, attempts=3, lease=10, result_ttl=60, keys=keys)  # tests/app/played_time.py passes it


@pytest.fixture
def settings(tmp_path: Path, redis_server: RedisServer, keys: Keys) -> Settings:
    return Settings(
        data=tmp_path,
        redis_url=redis_server.url,
        namespace=keys.namespace,
        max_upload_bytes=LIMIT,
        max_backlog=5,
        min_free_bytes=0,
    )


@pytest.fixture
def api(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings) as running:
        yield running


@pytest.fixture
def worker(api: LiveApi, jobs: Jobs) -> ScriptedWorker:
    return ScriptedWorker(jobs, api.service.blobs)
