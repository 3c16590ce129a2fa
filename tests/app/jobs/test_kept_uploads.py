"""Uploads that are kept of finished jobs give way before a new one is refused, the oldest first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.jobs.blobs import Blobs
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_uploads import KeptUploads
from app.jobs.redis_client import connect
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.small_disk import MIB, small_disk

FLOOR = 8 * MIB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 32) as folder:
        yield folder


@pytest.fixture
def small(settings: Settings, disk: Path) -> Iterator[LiveApi]:
    limits = {"data": disk, "min_free_bytes": FLOOR, "max_upload_bytes": 64 * MIB, "max_backlog": 100}
    with live_api(settings.model_copy(update=limits)) as running:
        yield running


def finish(api: LiveApi, worker: ScriptedWorker) -> str:
    """A job of six mebibytes that has succeeded."""
    response = send(api, bytes(6 * MIB))
    assert response.status_code == 202, response.text
    worker.succeed(worker.take())
    return str(response.json()["id"])


def test_kept_uploads_give_way_the_oldest_first(small: LiveApi, jobs: Jobs, disk: Path) -> None:
    worker = ScriptedWorker(jobs, small.service.blobs)
    ids = [finish(small, worker) for _ in range(5)]
    assert small.service.blobs.names("uploads") == set(ids[-3:])
    assert shutil.disk_usage(disk).free >= FLOOR
    states = [small.client.get(f"/jobs/{job_id}").json()["state"] for job_id in ids]
    assert states == ["succeeded"] * 5


def test_uploads_of_waiting_jobs_never_give_way(small: LiveApi, jobs: Jobs) -> None:
    worker = ScriptedWorker(jobs, small.service.blobs)
    kept = finish(small, worker)
    waiting = []
    while (response := send(small, bytes(6 * MIB))).status_code == 202:
        waiting.append(response.json()["id"])
    assert_problem(response, 507, "storage_full")
    assert len(waiting) == 3
    assert kept not in small.service.blobs.names("uploads") == set(waiting)


def test_what_would_not_fit_all_the_same_takes_nothing(small: LiveApi, jobs: Jobs) -> None:
    kept = finish(small, ScriptedWorker(jobs, small.service.blobs))
    assert_problem(send(small, bytes(31 * MIB)), 507, "storage_full")
    assert small.service.blobs.names("uploads") == {kept}


def test_uploads_on_another_disk_are_left_alone(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    job_id = finished(api, worker).rsplit("/", 1)[1]
    elsewhere = Blobs("memory://elsewhere", api.service.blobs.staging)
    assert not KeptUploads(jobs, elsewhere).make_room(lambda: 1)
    assert KeptUploads(jobs, api.service.blobs).make_room(iter([1, 0]).__next__)
    assert job_id not in api.service.blobs.names("uploads")


def test_without_redis_nothing_is_removed(tmp_path: Path, keys: Keys) -> None:
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    blobs.write("uploads/a", b"video")
    with connect(f"unix://{tmp_path}/nobody.sock", patience=0.1) as away:
        jobs = Jobs(away, attempts=3, lease=1, result_ttl=60, keys=keys)
        assert not KeptUploads(jobs, blobs).make_room(lambda: 1)
    assert blobs.names("uploads") == {"a"}
