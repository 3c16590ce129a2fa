"""What belongs to no job any more is collected while the service runs, and nothing else is."""

from __future__ import annotations

import json
import shutil
import time
import uuid
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from app.errors import QueueUnavailable
from app.jobs.batches import hold_uploads
from app.jobs.blobs import Blobs
from app.jobs.dead_letters import DeadLetter, letter_text
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.jobs.keeping.sweeper import Sweeper
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.settings import Settings
from tests.app.live_api import LiveApi, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.workers import eventually


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(str(tmp_path / "blobs"), tmp_path / "staging")


@pytest.fixture
def sweeper(jobs: Jobs, blobs: Blobs, settings: Settings) -> Sweeper:
    return Sweeper(jobs, blobs, settings)


def put_job(jobs: Jobs, blobs: Blobs) -> str:
    job_id = uuid.uuid4().hex
    blobs.write(f"uploads/{job_id}", b"video")
    jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}")
    return job_id


def put_result(blobs: Blobs, job_id: str) -> None:
    blobs.write(f"results/{job_id}/attention.json", bytes(1000))
    blobs.write(f"results/{job_id}/frames/0.jpg", bytes(1000))


def all_blobs(blobs: Blobs) -> set[str]:
    return {f"{folder}/{name}" for folder in ("uploads", "results") for name in blobs.names(folder)}


def test_what_has_no_record_goes_in_the_second_round(sweeper: Sweeper, jobs: Jobs, blobs: Blobs) -> None:
    waiting = put_job(jobs, blobs)
    blobs.write("uploads/nobody", b"video")
    put_result(blobs, "nobody")
    sweeper.sweep()
    assert all_blobs(blobs) == {f"uploads/{waiting}", "uploads/nobody", "results/nobody"}
    sweeper.sweep()
    assert all_blobs(blobs) == {f"uploads/{waiting}"}


def test_all_results_that_are_due_expire_in_one_round(
    jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.jobs.keeping.sweeper.AT_A_TIME", 2)
    sweeper = Sweeper(jobs, blobs, settings.model_copy(update={"keep_uploads": "result"}))
    due, running = [put_job(jobs, blobs) for _ in range(5)], put_job(jobs, blobs)
    for job_id in due:
        put_result(blobs, job_id)
        assert jobs.cancel(job_id) == "done"
    server.zadd(jobs.keys.expiry, dict.fromkeys((*due, running), 1))
    sweeper.sweep()
    assert all_blobs(blobs) == {f"uploads/{running}"}
    states = [job.state for job in map(jobs.get, (*due, running)) if job is not None]
    assert states == ["expired"] * 5 + ["queued"]


def test_a_clock_that_is_set_forward_by_a_week_expires_nothing(
    jobs: Jobs, blobs: Blobs, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it when it is set back; a process that starts then takes the clock for right."""
    sweeper = Sweeper(jobs, blobs, settings.model_copy(update={"keep_uploads": "3600"}))
    taker, job_id = ScriptedWorker(jobs, blobs), put_job(jobs, blobs)
    taker.succeed(taker.take())
    kept, right = all_blobs(blobs), jobs.server.time
    for days in (0, 8, 0, 8):
        monkeypatch.setattr(jobs.server, "time", lambda days=days: (right()[0] + days * 86400, 0))
        sweeper.sweep()
    assert jobs.due() == []
    assert all_blobs(blobs) == kept >= {f"uploads/{job_id}"}
    assert replace(jobs).due() == [job_id]


@pytest.mark.parametrize("lost", ["", "*"], ids=["the stream", "its lanes too"])
def test_jobs_whose_stream_was_deleted_wait_again(
    jobs: Jobs, blobs: Blobs, sweeper: Sweeper, lost: str
) -> None:
    """Also one that runs, for its worker may fall silent; but none that is over or a dead letter."""
    taker = ScriptedWorker(jobs, blobs)
    running = put_job(jobs, blobs)
    claim = taker.take()
    over, dead, *waiting = (put_job(jobs, blobs) for _ in range(4))
    jobs.cancel(over)
    jobs.server.hset(jobs.keys.job(dead), "dead", "1")
    jobs.server.delete(*jobs.server.keys(f"{jobs.keys.stream('normal')}{lost}"))
    for _ in range(2):
        sweeper.sweep()
    assert jobs.server.xlen(jobs.keys.stream("normal")) == 3
    taker._queue.open()
    taker.succeed(claim)
    taken = {claim.job.id for _ in range(4) for claim in taker._claims(0.5)}
    assert taken == set(waiting)
    job = jobs.get(running)
    assert job is not None
    assert job.state == "succeeded"


def test_a_record_that_comes_after_its_blob_keeps_it(sweeper: Sweeper, jobs: Jobs, blobs: Blobs) -> None:
    blobs.write("uploads/late", b"video")
    sweeper.sweep()
    jobs.submit("late", CaptionOptions(), "uploads/late")
    sweeper.sweep()
    sweeper.sweep()
    assert all_blobs(blobs) == {"uploads/late"}


@pytest.mark.parametrize("keep_uploads", ["result", "off"])
def test_jobs_that_are_over_keep_what_is_still_of_use(
    jobs: Jobs, blobs: Blobs, server: redis.Redis, settings: Settings, keep_uploads: str
) -> None:
    sweeper = Sweeper(jobs, blobs, settings.model_copy(update={"keep_uploads": keep_uploads}))
    kept = {
        "queued": {"uploads", "results"},
        "running": {"uploads", "results"},
        "succeeded": {"results"} | ({"uploads"} if keep_uploads == "result" else set()),
        "failed": {"uploads", "results"},
        "canceled": set(),
        "expired": set(),
        "paused": {"uploads", "results"},  # of a version to come
    }
    for state in kept:
        blobs.write(f"uploads/{state}", b"video")
        put_result(blobs, state)
        server.hset(jobs.keys.job(state), mapping={"state": state, "ended_at": 1})
        server.zadd(jobs.keys.expiry, {state: time.time() + 3600})
    sweeper.sweep()
    sweeper.sweep()
    assert all_blobs(blobs) == {f"{folder}/{state}" for state, folders in kept.items() for folder in folders}


def test_a_record_that_cannot_be_read_keeps_its_blobs(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, server: redis.Redis
) -> None:
    blobs.write("uploads/odd", b"video")
    server.set(jobs.keys.job("odd"), "a string where a hash should be")
    sweeper.sweep()
    sweeper.sweep()
    assert all_blobs(blobs) == {"uploads/odd"}


def test_a_dead_letter_keeps_its_blobs(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, server: redis.Redis
) -> None:
    """A record that lost its state, and has been laid aside to be requeued by hand."""
    blobs.write("uploads/odd", b"video")
    server.hset(jobs.keys.job("odd"), "options", "{}")
    server.hset(jobs.keys.dead, "odd", letter_text(DeadLetter(name="odd", kind="job", key="", reason="lost")))
    sweeper.sweep()
    sweeper.sweep()
    assert all_blobs(blobs) == {"uploads/odd"}


def test_a_flush_leaves_no_results_for_ever(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, server: redis.Redis
) -> None:
    for _ in range(66):
        put_result(blobs, put_job(jobs, blobs))
    sweeper.sweep()
    for key in server.scan_iter(f"{jobs.keys.namespace}:*"):
        server.delete(key)
    sweeper.sweep()
    assert len(all_blobs(blobs)) == 132
    sweeper.sweep()
    assert all_blobs(blobs) == set()


def test_after_a_flush_whoever_may_not_sweep_passes_the_turn(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis
) -> None:
    """Only who swept before may take over, and another process may come first."""
    put_result(blobs, put_job(jobs, blobs))
    sweeper.sweep()
    for key in server.scan_iter(f"{jobs.keys.namespace}:*"):
        server.delete(key)
    other = Sweeper(jobs, blobs, settings)
    for _ in range(2):
        other.sweep()
        sweeper.sweep()
        other.sweep()
    assert all_blobs(blobs) == set()


@pytest.mark.parametrize("other", ["namespace", "server"])
def test_the_blobs_of_another_service_are_left_alone(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis, other: str
) -> None:
    put_result(blobs, put_job(jobs, blobs))
    sweeper.sweep()
    before = all_blobs(blobs)
    if other == "namespace":
        keys = Keys(f"test-{uuid.uuid4().hex[:12]}")
    else:  # the same namespace, whose blobs were others until now
        keys = jobs.keys
        for key in server.scan_iter(f"{keys.namespace}:*"):
            server.delete(key)
        server.set(f"{keys.namespace}:blobs", f"{keys.namespace} of another store")
    stranger = Sweeper(Jobs(server, attempts=3, lease=1, result_ttl=60, keys=keys), blobs, settings)
    stranger.sweep()
    stranger.sweep()
    assert all_blobs(blobs) == before


def test_a_second_redis_beside_a_living_first_removes_nothing(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis
) -> None:
    """Two machines share the blobs, and REDIS_URL was forgotten on one: its own Redis knows no job at all."""
    put_result(blobs, put_job(jobs, blobs))
    sweeper.sweep()
    before, first_owner = all_blobs(blobs), server.get(f"{jobs.keys.namespace}:blobs")
    stranger = Sweeper(jobs, blobs, settings)
    for _ in range(4):
        for key in server.scan_iter(f"{jobs.keys.namespace}:*"):  # what the second Redis has
            server.delete(key)
        stranger.sweep()
        assert server.get(f"{jobs.keys.namespace}:blobs") is None
        assert isinstance(first_owner, str)
        server.delete(f"{jobs.keys.namespace}:sweeper")
        server.set(f"{jobs.keys.namespace}:blobs", first_owner)  # what the first has
        blobs.write("owner", f"{first_owner} {uuid.uuid4().hex}".encode())
    assert all_blobs(blobs) == before


def test_blobs_that_nobody_sweeps_are_taken_over_in_the_end(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    put_result(blobs, put_job(jobs, blobs))
    sweeper.sweep()
    for key in server.scan_iter(f"{jobs.keys.namespace}:*"):
        server.delete(key)
    successor = Sweeper(jobs, blobs, settings)
    successor.sweep()
    monkeypatch.setattr("app.jobs.keeping.sweeper.ADOPTED_AFTER", 0.0)
    for _ in range(3):
        successor.sweep()
    assert all_blobs(blobs) == set()


def test_a_new_store_is_swept_too(sweeper: Sweeper, jobs: Jobs, blobs: Blobs, tmp_path: Path) -> None:
    sweeper.sweep()
    shutil.rmtree(tmp_path / "blobs")
    put_result(blobs, "nobody")
    sweeper.sweep()
    sweeper.sweep()
    assert all_blobs(blobs) == set()


def test_one_process_sweeps_the_blobs_and_another_takes_over(
    jobs: Jobs, blobs: Blobs, settings: Settings, server: redis.Redis
) -> None:
    first, second = Sweeper(jobs, blobs, settings), Sweeper(jobs, blobs, settings)
    put_result(blobs, "nobody")
    first.sweep()
    second.sweep()
    second.sweep()
    assert all_blobs(blobs) == {"results/nobody"}
    server.delete(f"{jobs.keys.namespace}:sweeper")  # the first has been silent for three rounds
    second.sweep()
    assert all_blobs(blobs) == {"results/nobody"}  # seen by another is not seen by itself
    second.sweep()
    assert all_blobs(blobs) == set()


def test_the_budget_takes_what_finished_first(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    ids = []
    for _ in range(3):
        ids.append(send(api).headers["location"].rsplit("/", 1)[1])
        worker.succeed(worker.take(), {"padding": "x" * 50_000})
    blobs = api.service.blobs
    sizes = blobs.sizes("results")
    budget = sizes[ids[1]] + sizes[ids[2]]
    settings = api.service.settings.model_copy(update={"max_results_bytes": budget})
    jobs.server.delete(f"{jobs.keys.namespace}:sweeper")  # the API's own holds it
    Sweeper(jobs, blobs, settings).sweep()
    assert blobs.names("results") == {ids[1], ids[2]}
    assert [api.client.get(f"/jobs/{job_id}").json()["state"] for job_id in ids] == [
        "expired", "succeeded", "succeeded",
    ]  # fmt: skip
    kept = jobs.get(ids[1])
    assert kept is not None
    assert json.loads(blobs.read(f"{kept.results}/attention.json"))


def test_the_budget_takes_kept_uploads_before_results(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    ids = []
    for _ in range(3):
        ids.append(send(api, b"v" * 40_000).headers["location"].rsplit("/", 1)[1])
        worker.succeed(worker.take())
    waiting = send(api, b"v" * 40_000).headers["location"].rsplit("/", 1)[1]
    blobs = api.service.blobs
    budget = sum(blobs.sizes("results").values()) + 2 * 40_960  # ten blocks each
    settings = api.service.settings.model_copy(update={"max_results_bytes": budget})
    jobs.server.delete(f"{jobs.keys.namespace}:sweeper")  # the API's own holds it
    Sweeper(jobs, blobs, settings).sweep()
    assert blobs.names("uploads") == {ids[1], ids[2], waiting}
    documents = [api.client.get(f"/jobs/{job_id}").json() for job_id in ids]
    assert [document["state"] for document in documents] == ["succeeded"] * 3
    assert [document["urls"]["video"] is None for document in documents] == [True, False, False]


def test_uploads_that_are_kept_for_some_seconds_go_after_them(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs, server: redis.Redis
) -> None:
    old, new = (finished(api, worker).rsplit("/", 1)[1] for _ in range(2))
    server.hincrbyfloat(jobs.keys.job(old), "ended_at", -100)
    settings = api.service.settings.model_copy(update={"keep_uploads": "60"})
    server.delete(f"{jobs.keys.namespace}:sweeper")  # the API's own holds it
    sweeper = Sweeper(jobs, api.service.blobs, settings)
    sweeper.sweep()
    sweeper.sweep()
    assert api.service.blobs.names("uploads") == {new}
    assert api.service.blobs.names("results") == {old, new}


def test_results_of_an_attempt_that_did_not_count_go(
    sweeper: Sweeper, worker: ScriptedWorker, jobs: Jobs, blobs: Blobs
) -> None:
    """A worker that was frozen past its lease wrote beside the results of the run that counted."""
    job_id = put_job(jobs, blobs)
    claim = worker.take()
    late = f"results/{job_id}/{int(claim.token) - 1}"
    blobs.write(f"{late}/frames/0.jpg", b"late")
    worker.succeed(claim)
    jobs.server.delete(f"{jobs.keys.namespace}:sweeper")  # the API's own holds it
    sweeper.sweep()
    assert blobs.exists(late)
    sweeper.sweep()
    assert not blobs.exists(late)
    assert blobs.exists(f"{claim.results}/frames/0.jpg")


def test_results_of_older_versions_are_kept_where_they_lie(
    sweeper: Sweeper, worker: ScriptedWorker, jobs: Jobs, blobs: Blobs
) -> None:
    job_id = put_job(jobs, blobs)
    worker.succeed(worker.take())
    blobs.remove(f"results/{job_id}")
    put_result(blobs, job_id)
    jobs.server.hdel(jobs.keys.job(job_id), "results")  # as an older version left it
    jobs.server.delete(f"{jobs.keys.namespace}:sweeper")
    for _ in range(2):
        sweeper.sweep()
    job = jobs.get(job_id)
    assert job is not None
    assert blobs.exists(f"{job.results}/attention.json")
    assert blobs.exists(f"{job.results}/frames/0.jpg")


def test_without_redis_nothing_is_taken(blobs: Blobs, settings: Settings, keys: Keys, tmp_path: Path) -> None:
    put_result(blobs, "nobody")
    with connect(f"unix://{tmp_path}/nobody.sock", patience=0.1) as away:
        jobs = Jobs(away, attempts=3, lease=1, result_ttl=60, keys=keys)
        for _ in range(2):
            with pytest.raises(QueueUnavailable):
                Sweeper(jobs, blobs, settings).sweep()
    assert all_blobs(blobs) == {"results/nobody"}


def test_an_api_sweeps_by_itself(settings: Settings) -> None:
    often = settings.model_copy(update={"sweep_seconds": 0.1})
    with live_api(often) as api:
        put_result(api.service.blobs, "nobody")
        eventually(lambda: api.service.blobs.names("results") == set())


def test_files_of_a_batch_that_is_being_accepted_are_no_orphans(
    sweeper: Sweeper, jobs: Jobs, blobs: Blobs, server: redis.Redis
) -> None:
    for name in ("first", "second"):
        blobs.write(f"uploads/{name}", b"video")
    hold_uploads(jobs, ["first", "second"])
    for _ in range(3):
        sweeper.sweep()
    assert all_blobs(blobs) == {"uploads/first", "uploads/second"}
    server.zadd(jobs.keys.held_uploads, {"first": 1})  # its time is over: whoever held it has died
    for _ in range(2):
        sweeper.sweep()
    assert all_blobs(blobs) == {"uploads/second"}
    assert server.zrange(jobs.keys.held_uploads, 0, -1) == ["second"]
