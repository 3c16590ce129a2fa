"""What ``/readyz`` and ``doctor`` say of a real Redis that cannot do its work, each way by its code."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import redis

from app.cli.service.examination import check_redis
from app.errors import QueueUnavailable
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.redis_client import connect
from app.jobs.worker_registry import WorkerRegistry
from app.operations.service_health import Health, examine_service
from app.serve.embedded_redis import RedisServer, find_server
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.small_disk import fill, small_disk
from tests.app.workers import PAUSE, eventually

PROMISED_SECONDS = 3.0 + PAUSE


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[RedisServer]:
    """One that tests may harm."""
    with RedisServer(tmp_path / "redis") as running:
        yield running


@pytest.fixture
def own(own_server: RedisServer) -> Iterator[redis.Redis]:
    with connect(own_server.url, patience=5) as client:
        yield client


@pytest.fixture
def own_api(own_server: RedisServer, settings: Settings, own: redis.Redis) -> Iterator[LiveApi]:
    """An API on it, with a worker that is ready: nothing is wrong but what the test does."""
    with live_api(settings.model_copy(update={"redis_url": own_server.url})) as api:
        jobs = Jobs(own, attempts=3, lease=30, result_ttl=60, keys=api.service.jobs.keys)
        ScriptedWorker(jobs, api.service.blobs).advertise("stats")
        yield api


def causes(api: LiveApi) -> dict[str, str]:
    """What /readyz says is wrong; it says so in time, and what to do."""
    began = time.monotonic()
    response = api.client.get("/readyz")
    assert time.monotonic() - began < PROMISED_SECONDS
    problem = assert_problem(response, 503, "not_ready")
    assert problem["detail"] == problem["causes"][0]["message"]
    assert problem["hint"] == problem["causes"][0]["hint"]
    assert all(cause["hint"].endswith((".", "…")) for cause in problem["causes"])
    assert "REDIS_URL" not in response.text
    assert "sock" not in response.text, "where Redis lies is for the operator's log"
    return {cause["code"]: cause["message"] for cause in problem["causes"]}


def warnings(api: LiveApi) -> list[str]:
    response = api.client.get("/readyz")
    assert response.status_code == 200, response.text
    return [warning["code"] for warning in response.json()["warnings"]]


def test_nothing_is_wrong_with_ours(own_api: LiveApi) -> None:
    assert own_api.client.get("/readyz").json() == {"status": "ready", "workers": 1, "warnings": []}


def test_workers_are_missing_or_load(api: LiveApi, worker: ScriptedWorker) -> None:
    assert list(causes(api)) == ["no_worker"]
    worker.advertise("stats", is_ready=False)
    assert list(causes(api)) == ["workers_loading"]


def test_a_pause_of_everything_is_named(own_api: LiveApi, own: redis.Redis) -> None:
    own.client_pause(3_500, all=True)  # which no command ends
    assert list(causes(own_api)) == ["redis_frozen"]
    own.ping()
    assert warnings(own_api) == []


def test_a_pause_of_writes_is_named(own_api: LiveApi, own: redis.Redis) -> None:
    own.client_pause(60_000, all=False)
    try:
        assert list(causes(own_api)) == ["redis_paused"]
    finally:
        own.client_unpause()


def test_a_stopped_process_is_named(own_api: LiveApi, own_server: RedisServer) -> None:
    assert own_server.pid is not None
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        assert list(causes(own_api)) == ["redis_frozen"]
    finally:
        os.kill(own_server.pid, signal.SIGCONT)


def test_a_server_that_is_gone_is_named(own_api: LiveApi, own_server: RedisServer) -> None:
    own_server.stop()
    assert list(causes(own_api)) == ["redis_away"]


def test_a_replica_is_named_with_its_primary(own_api: LiveApi, own: redis.Redis) -> None:
    own.replicaof("127.0.0.1", 1)
    assert list(causes(own_api)) == ["redis_read_only"]
    health = examine_service(own, own_api.service.registry)
    assert "127.0.0.1:1" in health.blocking[0].advice
    own.config_set("replica-serve-stale-data", "no")
    assert list(causes(own_api)) == ["redis_read_only"]
    own.replicaof("NO", "ONE")
    assert warnings(own_api) == []


def test_a_full_memory_is_named_and_takes_no_job(own_api: LiveApi, own: redis.Redis) -> None:
    own.config_set("maxmemory", 100)
    assert list(causes(own_api)) == ["redis_full"]
    assert send(own_api).status_code == 503
    own.config_set("maxmemory", 0)
    assert warnings(own_api) == []
    assert send(own_api).status_code == 202


@pytest.mark.parametrize("policy", ["allkeys-lru", "allkeys-lfu", "allkeys-random"])
def test_eviction_of_jobs_is_no_readiness(own_api: LiveApi, own: redis.Redis, policy: str) -> None:
    own.config_set("maxmemory", 0)
    own.config_set("maxmemory-policy", policy)
    assert warnings(own_api) == ["redis_evicts"], "nothing is deleted while there is no limit"
    own.config_set("maxmemory", "1gb")
    troubles = causes(own_api)
    assert list(troubles) == ["redis_evicts"]
    assert policy in troubles["redis_evicts"]


def test_eviction_of_what_lapses_is_a_warning(own_api: LiveApi, own: redis.Redis) -> None:
    own.config_set("maxmemory-policy", "volatile-lru")
    own.config_set("maxmemory", "1gb")
    assert warnings(own_api) == ["redis_evicts"]


def test_a_server_without_a_file_is_a_warning(own_api: LiveApi, own: redis.Redis) -> None:
    own.config_set("appendonly", "no")
    assert warnings(own_api) == ["redis_not_durable"]


def test_refused_access_is_named(own_api: LiveApi, own: redis.Redis) -> None:
    rights: Any = {"reset_keys": True, "keys": ["elsewhere"], "commands": ["+@all"]}
    own.acl_setuser("default", enabled=True, nopass=True, **rights)
    assert list(causes(own_api)) == ["redis_refuses"]


def test_a_snapshot_that_cannot_be_written_stops_writes(
    own_api: LiveApi, own: redis.Redis, own_server: RedisServer
) -> None:
    own.config_set("save", "3600 1")
    shutil.rmtree(own_server.folder)
    own.bgsave()
    eventually(lambda: own.info("persistence")["rdb_last_bgsave_status"] == "err")
    assert list(causes(own_api)) == ["redis_disk_full"]
    own.config_set("stop-writes-on-bgsave-error", "no")
    assert warnings(own_api) == ["redis_save_failed"]
    own.config_set("save", "")  # else it does not leave


def test_a_full_disk_is_named(settings: Settings, tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "disk", 64) as folder,
        RedisServer(folder / "redis") as running,
        connect(running.url, patience=1) as client,
        live_api(settings.model_copy(update={"redis_url": running.url})) as api,
    ):
        client.config_set("appendfsync", "everysec")  # refuses where it cannot write, instead of ending
        jobs = Jobs(client, attempts=3, lease=60, result_ttl=60, keys=api.service.jobs.keys)
        ScriptedWorker(jobs, api.service.blobs).advertise("stats")
        running.ballast.unlink(missing_ok=True)
        filler = fill(folder)
        _write_until_refused(client)
        assert list(causes(api)) == ["redis_disk_full"]
        filler.unlink()
        eventually(lambda: api.client.get("/readyz").json().get("code") != "not_ready", 20)


def _write_until_refused(client: redis.Redis) -> None:
    def is_refused() -> bool:
        try:
            client.set("large", "x" * 1_000_000)
        except QueueUnavailable as error:
            return "MISCONF" in str(error)
        return False

    eventually(is_refused, 20)


def test_a_server_that_reads_its_file_is_named(tmp_path: Path, settings: Settings) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(find_server()), "--port", str(port), "--dir", str(tmp_path), "--save", ""]
    with _run(command, port) as client:
        client.mset({f"key{number}": "value" for number in range(5000)})
        client.save()
    slowly = ["--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024"]
    with _run([*command, *slowly], port):
        registry = WorkerRegistry(connect(f"redis://127.0.0.1:{port}", 0.1, 2.5), Keys(settings.namespace))
        health = health_of(f"redis://127.0.0.1:{port}", registry)
        assert [trouble.code for trouble in health.troubles] == ["redis_loading"]


def test_workers_are_not_asked_for_where_redis_had_not_read_its_file(server: redis.Redis) -> None:
    """It may be through by the next command: the list would be empty, and nobody had registered yet."""
    with mock.patch.object(server, "info", return_value={"loading": 1, "loading_eta_seconds": 1}):
        health = examine_service(server, WorkerRegistry(server, Keys("nobody")))
    assert [trouble.code for trouble in health.troubles] == ["redis_loading"]


def health_of(url: str, registry: WorkerRegistry) -> Health:
    with connect(url, patience=0.1, answer_seconds=2.5) as client:
        return examine_service(client, registry)


class _run:  # noqa: N801 - used like a function
    """A server of its own, killed at the end."""

    def __init__(self, command: list[str], port: int) -> None:
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self._client = redis.Redis(port=port)

    def __enter__(self) -> redis.Redis:
        eventually(self._listens)
        return self._client

    def __exit__(self, *exception: object) -> None:
        self._client.close()
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        try:
            self._client.info()
        except redis.ConnectionError:
            return False
        return True


def test_doctor_says_the_same(own_server: RedisServer, own: redis.Redis, settings: Settings) -> None:
    own.config_set("maxmemory-policy", "allkeys-lru")
    own.config_set("maxmemory", "1gb")
    findings = list(check_redis(settings.model_copy(update={"redis_url": own_server.url})))
    assert [finding.subject for finding in findings][1:] == [
        "redis_evicts",
        "no_worker",
        "workers",
        "access",
    ]
    assert "maxmemory-policy allkeys-lru" in str(findings[1].trouble)
    assert "CONFIG SET maxmemory-policy noeviction" in str(findings[1].trouble)
    assert "refused until REELWORD_TRUSTED_PROXIES names it" in findings[4].found


def test_the_manual_lists_each_code(root: Path) -> None:
    text = (root / "app/operations/service_health.py").read_text()
    codes = set(re.findall(r'Trouble\(\s*"(\w+)"', text))
    assert len(codes) > 10
    page = (root / "docs/operate.md").read_text()
    section = page.partition("### Ready or not")[2].partition("\n### ")[0]
    assert codes == set(re.findall(r"^\| `(\w+)`", section, re.MULTILINE))
