"""Workers on the list, and off it again."""

from __future__ import annotations

import pytest
import redis

from app.jobs.captioner_info import CaptionerInfo
from app.jobs.job import Keys
from app.jobs.worker_registry import WorkerInfo, WorkerRegistry
from tests.app.played_time import pass_time


def info(name: str, *captioners: str, is_ready: bool = True) -> WorkerInfo:
    listed = [CaptionerInfo(name=each, weights_sha256="0" * 64, features={}) for each in captioners]
    return WorkerInfo(
        name=name,
        pid=1,
        host="here",
        version="1",
        is_ready=is_ready,
        device="cpu",
        started_at=0.0,
        captioners=listed,
    )


def test_what_workers_say_is_listed(server: redis.Redis, keys: Keys) -> None:
    registry = WorkerRegistry(server, keys)
    assert registry.workers() == []
    assert not registry.is_ready()
    registry.advertise(info("bob", "stats", is_ready=False))
    assert not registry.is_ready()
    registry.advertise(info("ann", "stats", "g2l"))
    assert [worker.name for worker in registry.workers()] == ["ann", "bob"]
    assert sorted(registry.captioners()) == ["g2l", "stats"]
    assert registry.is_ready()
    registry.withdraw("ann")
    assert [worker.name for worker in registry.workers()] == ["bob"]


def test_the_default_is_one_that_every_worker_has(server: redis.Redis, keys: Keys) -> None:
    """Whichever of them takes the job, it can write what was chosen when the job was accepted."""
    registry = WorkerRegistry(server, keys)
    assert registry.captioner_choices().default is None
    registry.advertise(info("ann", "g2l", "stats").model_copy(update={"default": "g2l"}))
    assert registry.captioner_choices().default == "g2l"
    registry.advertise(info("bob", "refocus", "stats").model_copy(update={"default": "stats"}))
    assert registry.captioner_choices().default == "stats"
    registry.advertise(info("cid", "refocus").model_copy(update={"default": "refocus"}))
    assert registry.captioner_choices().default == "g2l"


def test_a_worker_that_falls_silent_is_off_the_list(server: redis.Redis, keys: Keys) -> None:
    registry = WorkerRegistry(server, keys)
    registry.advertise(info("ann"))
    assert 9_000 < server.pttl(keys.worker("ann")) <= 10_000
    assert len(registry.workers()) == 1
    server.delete(keys.worker("ann"))  # as ten seconds later
    assert registry.workers() == []
    assert server.zcard(keys.workers) == 0


def test_a_clock_set_back_keeps_no_dead_worker_on_the_list(server: redis.Redis, keys: Keys) -> None:
    registry = WorkerRegistry(server, keys)
    registry.advertise(info("ann"))
    server.pexpire(keys.worker("ann"), 600_000)  # to the server it lasts ten minutes longer
    server.hincrby(keys.clock, "wall", 600_000)
    assert [worker.name for worker in registry.workers()] == ["ann"]
    pass_time(server, keys, 10.1)
    assert registry.workers() == []
    registry.advertise(info("bob"))
    server.hincrby(keys.clock, "wall", -600_000)  # and set forward it takes none off the list that lives
    assert [worker.name for worker in registry.workers()] == ["bob"]


def test_a_long_list_is_read_once_a_second(
    server: redis.Redis, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each submission asks for it, and a thousand workers take a tenth of a second to read."""
    monkeypatch.setattr("app.jobs.worker_registry.FRESH_SECONDS", 60.0)
    registry = WorkerRegistry(server, keys)
    for number in range(40):
        registry.advertise(info(f"w{number}", "stats"))
    assert len(registry.workers()) == 40
    registry.advertise(info("late", "stats"))
    assert len(registry.workers()) == 40
    monkeypatch.setattr("app.jobs.worker_registry.FRESH_SECONDS", 0.0)  # as a minute later
    assert len(registry.workers()) == 41


def test_who_loads_or_leaves_is_none_that_takes_jobs(server: redis.Redis, keys: Keys) -> None:
    registry = WorkerRegistry(server, keys)
    registry.advertise(info("ann"))
    registry.advertise(info("bob", is_ready=False))
    registry.advertise(info("cat"))
    assert server.zrange(keys.ready_workers, 0, -1) == ["ann", "cat"]
    registry.advertise(info("ann", is_ready=False))
    registry.withdraw("cat")
    assert server.zcard(keys.ready_workers) == 0
