"""Values in Redis that nobody expects: they cost their job, wait as dead letters, and harm nobody else."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import redis
from typer.testing import CliRunner

from app.cli.main import cli
from app.errors import RecordUnreadable
from app.jobs.job import PRIORITIES, Keys
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.jobs.worker_registry import WorkerRegistry
from tests.app.live_api import LiveApi, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.worker.test_worker import settings_for
from tests.app.workers import Service, eventually, service
from tests.media import write_video

#: Fields of a record as no version of ours writes them, or only a later one.
UNREADABLE: dict[str, dict[str, str | None]] = {
    "an option of a later version": {"options": '{"beam_size": 5, "colour": "blue"}'},
    "a later version": {"version": "7"},
    "a version that is no number": {"version": "new"},
    "options that are no JSON": {"options": "beam_size=5"},
    "options out of bounds": {"options": '{"beam_size": 5000}'},
    "no options": {"options": None},
    "no upload": {"upload": None},
    "an upload outside the uploads": {"upload": "uploads/../../secret"},
    "another job's id": {"id": "f" * 32},
    "no id": {"id": None},
    "a state that is not known": {"state": "paused"},
    "a priority that is not known": {"priority": "urgent"},
    "an attempt that is no number": {"attempt": "first"},
    "a token that is no number": {"token": "abc"},
    "progress that is no number": {"progress": "nan"},
    "a time that is none": {"created_at": "1e300"},
    "an answer that is no JSON": {"answer": "{"},
    "an answer that is a list": {"answer": "[1]"},
    "an error that is no JSON": {"error": "oops"},
    "an entry that is none": {"entry": "last"},
    "bytes that are no text": {"options": b"\xff\xfe"},  # type: ignore[dict-item]
}


def submit(jobs: Jobs) -> str:
    job_id = uuid.uuid4().hex
    return jobs.submit(job_id, CaptionOptions(captioner="echo"), f"uploads/{job_id}").id


def spoil(jobs: Jobs, job_id: str, fields: Mapping[str, str | None]) -> None:
    key = jobs.keys.job(job_id)
    for name, value in fields.items():
        if value is None:
            jobs.server.hdel(key, name)
        else:
            jobs.server.hset(key, name, value)


@pytest.fixture
def crew(server: redis.Redis, api: LiveApi, jobs: Jobs, tmp_path: Path) -> Iterator[Service]:
    """Workers on the API's Redis, namespace and folder."""
    settings = settings_for(tmp_path, jobs.keys.namespace)
    with service(server, str(api.service.settings.redis_url), settings) as running:
        yield running


def test_a_worker_lives_through_every_unexpected_value(crew: Service, api: LiveApi, jobs: Jobs) -> None:
    video = write_video(crew.settings.data / "clip.mp4", frames=5)
    spoiled = {}
    for what, fields in UNREADABLE.items():
        spoiled[what] = submit(jobs)
        spoil(jobs, spoiled[what], fields)
    other = submit(jobs)
    jobs.server.delete(jobs.keys.job(other))
    jobs.server.set(jobs.keys.job(other), "not a hash")
    jobs.server.xadd(jobs.keys.stream("normal"), {"colour": "blue"})
    jobs.server.xadd(jobs.keys.stream("high"), {"job": "../../etc"})
    jobs.server.zadd(jobs.keys.expiry, {"../..": 1, other: 1})
    jobs.server.set(jobs.keys.stream("low"), "not a stream")
    jobs.server.set(jobs.keys.clock, "not a hash")
    good = crew.submit(video)

    worker = crew.start_worker(REELWORD_BATCH_JOBS="4")
    assert crew.wait(good).state == "succeeded"
    assert worker.poll() is None

    letters = {letter.name: letter for letter in jobs.dead.all()}
    for what, job_id in spoiled.items():
        assert job_id in letters, what
        assert letters[job_id].reason, what
        answer = api.client.get(f"/jobs/{job_id}")
        assert (answer.status_code, answer.json()["code"]) == (409, "record_unreadable"), what
    assert letters[other].kind == "job"
    assert {letter.kind for letter in letters.values()} == {"job", "entry", "key"}
    assert api.client.get(f"/jobs/{other}").json()["code"] == "record_unreadable"
    assert api.client.delete(f"/jobs/{other}").status_code == 409
    assert sum(crew.jobs.server.xlen(jobs.keys.stream(each)) for each in ("high", "normal")) == 0
    for path in ("/readyz", "/models", "/metrics"):
        assert api.client.get(path).status_code == 200
    assert f"reelword_dead_letters {len(letters):.1f}" in api.client.get("/metrics").text
    assert crew.wait(send(api, video.read_bytes(), captioner="echo").json()["id"]).state == "succeeded"


def test_advertisements_that_cannot_be_read_count_for_nothing(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs, keys: Keys
) -> None:
    worker.advertise("stats")
    values = ("", "{", "[]", '{"name": "bob"}', '{"is_ready": true}', "\x00")
    for number, value in enumerate(values):
        jobs.server.set(keys.worker(f"bad{number}"), value)
        jobs.server.zadd(keys.workers, {f"bad{number}": number})
    jobs.server.rpush(keys.worker("list"), "x")
    jobs.server.zadd(keys.workers, {"list": 1})
    assert api.client.get("/readyz").json()["workers"] == 1
    assert [each["name"] for each in api.client.get("/models").json()["captioners"]] == ["stats"]
    assert api.client.get("/metrics").status_code == 200
    answer = send(api, captioner="stats")
    assert answer.status_code == 202
    worker.succeed(worker.take())
    assert api.client.get(answer.json()["urls"]["self"]).json()["state"] == "succeeded"


def test_keys_of_another_type_are_put_aside(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs, keys: Keys
) -> None:
    names = (
        keys.workers,
        keys.expiry,
        keys.clock,
        keys.dead,
        *(keys.stream(priority) for priority in PRIORITIES),
    )
    jobs.server.delete(*names)
    for name in names:
        jobs.server.set(name, "something else")
    for path, status in (("/readyz", 503), ("/models", 200), ("/metrics", 200)):
        assert api.client.get(path).status_code == status
    answer = send(api)
    assert answer.status_code == 202
    worker.advertise("stats")
    worker._queue.open()
    worker.succeed(worker.take())
    assert api.client.get(answer.json()["urls"]["self"]).json()["state"] == "succeeded"
    assert WorkerRegistry(jobs.server, keys).is_ready()
    assert jobs.due() == []


def test_an_answer_that_makes_no_document_is_said_by_name(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    job_id = send(api).json()["id"]
    worker.succeed(worker.take())
    for answer in ('{"caption": 5}', '{"media": []}', '{"timings": 3}', '{"blob": "../x"}', '{"blob": 7}'):
        jobs.server.hset(jobs.keys.job(job_id), "answer", answer)
        response = api.client.get(f"/jobs/{job_id}")
        assert (response.status_code, response.json()["code"]) == (409, "record_unreadable"), answer


def test_segments_that_a_later_version_kept_are_captioned_anew(
    crew: Service, api: LiveApi, jobs: Jobs
) -> None:
    """And cost no worker its life: the record can be read but for them."""
    video = write_video(crew.settings.data / "clip.mp4", frames=5)
    ids = [crew.submit(video) for _ in range(3)]
    for job_id, segments in zip(ids, ("3", '{"at": [1]}', '{"folder": "x", "done": "many"}'), strict=True):
        jobs.server.hset(jobs.keys.job(job_id), "answer", f'{{"segments": {segments}}}')
        assert api.client.get(f"/jobs/{job_id}").status_code == 200
    worker = crew.start_worker()
    assert [crew.wait(job_id).state for job_id in ids] == ["succeeded"] * 3
    assert [crew.jobs.get(job_id).attempt for job_id in ids] == [1, 1, 1]  # type: ignore[union-attr]
    assert worker.poll() is None


def test_letters_are_listed_shown_requeued_and_dropped(
    jobs: Jobs, server: redis.Redis, keys: Keys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = server.get_connection_kwargs()
    monkeypatch.setenv("REDIS_URL", f"unix://{arguments['path']}")
    monkeypatch.setenv("REELWORD_NAMESPACE", keys.namespace)
    monkeypatch.setenv("REELWORD_DATA", str(tmp_path))
    worker = ScriptedWorker(jobs, blobs=None)  # type: ignore[arg-type]
    job_id = submit(jobs)
    good = server.hget(keys.job(job_id), "options")
    spoil(jobs, job_id, {"options": "{"})
    (offer,) = worker._queue.take(1)
    jobs.claim(job_id, offer.entry, offer.priority, "w", cause=RecordUnreadable(""))
    jobs.bury("", str(server.xadd(keys.stream("low"), {"a": "b"})), "low", "no job", {"a": "b"})

    def dead(*arguments: str, code: int = 0) -> str:
        result = CliRunner().invoke(cli, ["dead", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    assert [each["kind"] for each in json.loads(dead("list", "--json"))] == ["job", "entry"]
    assert job_id in dead("list")
    assert json.loads(dead("show", job_id, "--json"))["value"]["options"] == "{"
    assert "stays" in dead("requeue", job_id, code=1)
    server.hset(keys.job(job_id), "options", str(good))
    assert "waits again" in dead("requeue", job_id)
    assert worker.take().job.attempt == 1
    (entry,) = jobs.dead.all()
    assert (entry.kind, entry.fields) == ("entry", {"a": "b"})
    assert "names no job" in dead("requeue", entry.name, code=1)
    dead("drop", entry.name)
    assert "no dead letters" in dead("list")
    dead("show", "nobody", code=1)


def test_a_record_that_is_spoiled_while_it_runs_costs_that_job_alone(
    crew: Service, jobs: Jobs, tmp_path: Path
) -> None:
    video = write_video(tmp_path / "clip.mp4", frames=5)
    worker = crew.start_worker()
    job_id = crew.submit(video, "sleep-1")
    crew.wait(job_id, lambda job: job.stage == "extract")
    jobs.server.delete(jobs.keys.job(job_id))
    jobs.server.rpush(jobs.keys.job(job_id), "not a hash")
    assert crew.wait(crew.submit(video)).state == "succeeded"
    eventually(lambda: jobs.dead.find(job_id) is not None)
    assert worker.poll() is None
