"""On a disk that fills up the embedded server goes on, and is back in a moment where it did end."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from app.errors import NotOnDisk, QueueError, QueueUnavailable
from app.jobs.blobs import Blobs
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect, unavailable_if_away
from app.serve import redis_disk
from app.serve.embedded_redis import RedisServer
from app.serve.redis_disk import BALLAST_BYTES, LOW_BYTES, RedisRoom
from tests.app.scripted_worker import ScriptedWorker
from tests.app.small_disk import MIB, fill, small_disk
from tests.app.workers import eventually

DISK = (2 * LOW_BYTES + 2 * BALLAST_BYTES) // MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", DISK) as folder:
        yield folder


def how_it_flushes(client: redis.Redis) -> str:
    found: dict[str, str] = client.config_get("appendfsync")  # type: ignore[assignment]
    return found["appendfsync"]


def put(jobs: Jobs, name: str) -> None:
    jobs.submit(name, CaptionOptions(), f"uploads/{name}")


def test_a_disk_that_fills_up_while_it_is_looked_after(disk: Path) -> None:
    """Less and less room: no write is lost or half done, the server lives, and all is as before after."""
    with RedisServer(disk / "redis") as server, connect(server.url, patience=5) as client:
        jobs = Jobs(client, attempts=3, lease=1, result_ttl=60)
        put(jobs, "before")
        assert (how_it_flushes(client), server.ballast.stat().st_size) == ("always", BALLAST_BYTES)
        fill(disk, leave=LOW_BYTES // 2)
        server.tend()
        assert how_it_flushes(client) == "everysec"
        put(jobs, "short-of-room")
        fill(disk)
        write_until_refused(client)
        assert server.is_running
        assert jobs.get("before") is not None
        with pytest.raises(NotOnDisk):
            put(jobs, "refused")
        server.tend()
        assert not server.ballast.exists()
        eventually(lambda: takes(jobs, "in-the-ballasts-place"), 20)
        (disk / "filler").unlink()
        server.tend()
        server.tend()
        assert (how_it_flushes(client), server.ballast.stat().st_size) == ("always", BALLAST_BYTES)
        put(jobs, "after")
        for name in ("before", "short-of-room", "in-the-ballasts-place", "after"):
            assert jobs.get(name) is not None


def write_until_refused(client: redis.Redis) -> None:
    deadline = time.monotonic() + 20
    with pytest.raises(QueueUnavailable, match="MISCONF"):  # noqa: PT012
        while time.monotonic() < deadline:
            client.set("filler", os.urandom(MIB))
            client.delete("filler")


def takes(jobs: Jobs, name: str) -> bool:
    try:
        put(jobs, name)
    except QueueError:
        return False
    return True


def test_a_disk_that_is_full_at_once_costs_one_restart(disk: Path) -> None:
    with RedisServer(disk / "redis") as server, connect(server.url, patience=5) as client:
        jobs = Jobs(client, attempts=3, lease=1, result_ttl=60)
        put(jobs, "before")
        fill(disk)
        with pytest.raises(QueueError):  # flushed always, it ends at what it cannot write
            put(jobs, "lost" + "x" * 5000)
        eventually(lambda: not server.is_running)
        began = time.monotonic()
        server.start()
        assert time.monotonic() - began < 20
        assert how_it_flushes(client) == "everysec"
        assert not server.ballast.exists()
        assert jobs.get("before") is not None
        put(jobs, "after")
        assert server.is_running


def test_a_start_on_a_full_disk(disk: Path) -> None:
    with RedisServer(disk / "redis") as server, connect(server.url, patience=5) as client:
        put(Jobs(client, attempts=3, lease=1, result_ttl=60), "before")
        server.ballast.unlink()
        fill(disk)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.is_running)
        server.start()
        assert Jobs(client, attempts=3, lease=1, result_ttl=60).get("before") is not None
        assert (server.folder / "url").read_text() == server.url


def test_a_small_disk_has_no_ballast(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", LOW_BYTES // MIB // 2) as folder, RedisServer(folder) as server:
        assert not server.ballast.exists()
        with connect(server.url, patience=5) as client:
            assert how_it_flushes(client) == "everysec"


def test_a_frozen_server_holds_up_nobody_who_looks_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with RedisServer(tmp_path) as server:
        monkeypatch.setattr(redis_disk, "LOW_BYTES", shutil.disk_usage(tmp_path).total)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            began = time.monotonic()
            server.tend()
            assert time.monotonic() - began < 10
        finally:
            os.kill(server.pid, signal.SIGCONT)
        server.tend()
        with connect(server.url, patience=5) as client:
            assert how_it_flushes(client) == "everysec"


def test_a_ballast_is_blocks_not_a_hole(disk: Path) -> None:
    before = shutil.disk_usage(disk).free
    RedisRoom(disk).prepare()
    assert before - shutil.disk_usage(disk).free >= BALLAST_BYTES


def test_a_full_memory_refuses_new_jobs_and_ends_those_in_hand(tmp_path: Path) -> None:
    with RedisServer(tmp_path / "redis") as server, connect(server.url, patience=5) as client:
        jobs = Jobs(client, attempts=3, lease=5, result_ttl=60)
        worker = ScriptedWorker(jobs, Blobs(str(tmp_path / "blobs"), tmp_path / "staging"))
        put(jobs, "one")
        put(jobs, "two")
        client.config_set("maxmemory", 1)
        with pytest.raises(NotOnDisk):
            put(jobs, "three")
        claim = worker.take()
        assert jobs.beat(claim, "decode", 0.5) == "go"
        worker.succeed(claim)
        assert worker.take().job.id == "two"
        with pytest.raises(QueueUnavailable), unavailable_if_away():
            client.set("more", "x")
