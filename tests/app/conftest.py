"""A real Redis for the tests of the service: one server a run, one namespace a test."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis

from app.jobs import Jobs, Keys
from app.redis_client import connect
from app.redis_server import RedisServer


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
    return Jobs(server, attempts=3, lease=0.5, result_ttl=60, keys=keys)
