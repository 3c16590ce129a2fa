"""What a server that is away, frozen or unable to work costs those who ask it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import redis

from app.api.application import THREADS
from app.api.dependencies import ANSWER_SECONDS
from app.errors import QueueUnavailable, RedisRefuses
from app.jobs.redis_client import connect, unavailable_if_away
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.workers import PAUSE

PROMISED_SECONDS = 3.0 + PAUSE


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def own_api(own_server: RedisServer, settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"redis_url": own_server.url})) as api:
        yield api


@contextmanager
def frozen(server: RedisServer) -> Iterator[None]:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize("user", ["default:wrong", "reader:reader"])
def test_a_redis_that_refuses_is_named(own_server: RedisServer, user: str) -> None:
    with connect(own_server.url, patience=1) as admin:
        admin.config_set("requirepass", "right")
        rights = ["+ping", "+hello", "+client"]
        admin.acl_setuser("reader", enabled=True, passwords=["+reader"], commands=rights)
    address = own_server.url.replace("redis://", f"redis://{user}@")
    refused = pytest.raises(RedisRefuses, match="Redis refuses")
    with connect(address, patience=0.1) as client, refused, unavailable_if_away():
        client.set("a", "b")


@pytest.mark.parametrize("said", ["DENIED Redis is running in protected mode", "NOPERM no rights"])
def test_an_error_of_a_server_that_lets_nobody_in_is_named(said: str) -> None:
    with pytest.raises(RedisRefuses), unavailable_if_away():
        raise redis.ResponseError(said)


def test_a_frozen_redis_is_503_within_three_seconds(own_server: RedisServer, own_api: LiveApi) -> None:
    location = send(own_api).headers["location"]
    asks = {
        "queue_unavailable": (lambda: own_api.client.get(location), lambda: own_api.client.get("/models")),
        "not_ready": (lambda: own_api.client.get("/readyz"),),
    }
    with frozen(own_server):
        for code, requests in asks.items():
            for request in requests:
                began = time.monotonic()
                response = request()
                assert time.monotonic() - began < PROMISED_SECONDS
                assert_problem(response, 503, code)
                assert int(response.headers["retry-after"]) > 0
        began = time.monotonic()
        assert_problem(send(own_api), 503, "queue_unavailable")
        assert "reelword_redis_up 0.0" in own_api.client.get("/metrics").text
        assert time.monotonic() - began < 2 * PROMISED_SECONDS
        assert own_api.client.get("/livez").status_code == 200
        assert (own_api.staged, len(own_api.uploads)) == ([], 1)
    assert own_api.client.get(location).json()["state"] == "queued"
    assert send(own_api).status_code == 202


def test_many_who_ask_a_frozen_redis_wait_no_longer_than_one(
    own_server: RedisServer, own_api: LiveApi
) -> None:
    def ask(_: int) -> tuple[int, float]:
        began = time.monotonic()
        status = client.get("/models").status_code
        return status, time.monotonic() - began

    limits = httpx.Limits(max_connections=100)
    with (
        httpx.Client(base_url=f"http://127.0.0.1:{own_api.port}", timeout=60, limits=limits) as client,
        frozen(own_server),
        ThreadPoolExecutor(100) as pool,
    ):
        answers = list(pool.map(ask, range(100)))
    assert {status for status, _ in answers} == {503}
    # one round of waiting and what a busy machine takes for a hundred; in a queue it would be two or three
    assert max(seconds for _, seconds in answers) < 2 * ANSWER_SECONDS


def test_a_freeze_shorter_than_a_worker_s_patience_is_waited_out(own_server: RedisServer) -> None:
    with connect(own_server.url, patience=30) as client:
        assert own_server.pid is not None
        os.kill(own_server.pid, signal.SIGSTOP)
        threading.Timer(ANSWER_SECONDS + 1.5, os.kill, (own_server.pid, signal.SIGCONT)).start()
        began = time.monotonic()
        assert client.ping()
        assert time.monotonic() - began > ANSWER_SECONDS


@pytest.mark.parametrize(
    "said",
    [
        "MISCONF Errors writing to the AOF file: No space left on device",
        "OOM command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:12.",
        "READONLY You can't write against a read only replica.",
        "NOREPLICAS Not enough good replicas to write.",
    ],
)
def test_a_server_that_cannot_work_is_away(said: str) -> None:
    with pytest.raises(QueueUnavailable, match="cannot do it now"), unavailable_if_away():
        raise redis.ResponseError(said)


def test_a_wrong_command_is_a_fault_not_an_absence() -> None:
    with pytest.raises(redis.ResponseError, match="WRONGTYPE"), unavailable_if_away():
        raise redis.ResponseError("WRONGTYPE Operation against a key")


def test_as_many_may_wait_for_redis_as_there_are_threads(redis_server: RedisServer) -> None:
    with connect(redis_server.url, patience=1) as client, ThreadPoolExecutor(THREADS) as pool:
        waits = [pool.submit(client.blpop, f"nothing-{number}", 2) for number in range(THREADS)]
        assert [wait.result() for wait in waits] == [None] * THREADS
