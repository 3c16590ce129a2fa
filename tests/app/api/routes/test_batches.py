"""``/batches`` over a socket: many videos at once, all or none."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from app.api.dependencies import Caller
from app.api.receiving.batch_body import AT_ONCE, BATCH_NAMES, OVERHEAD
from app.errors import WorkerLost
from app.jobs.batches import MOST_ITEMS
from app.jobs.job_store import Jobs
from app.jobs.keeping.sweeper import Sweeper
from app.settings import Settings
from tests.app.job_counts import count_by_state
from tests.app.live_api import LIMIT, LiveApi, assert_problem, key_of, live_api
from tests.app.scripted_worker import ScriptedWorker
from tests.app.workers import environment_of, eventually


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_backlog": 150, "max_batch_bytes": 2 * LIMIT})


def post(api: LiveApi, count: int = 3, **fields: Any) -> httpx.Response:
    """Sends so many files; fields are texts or lists of texts."""
    files = [("video", (f"clip{number}.mp4", f"video {number}".encode())) for number in range(count)]
    return api.client.post("/batches", files=files, data=fields)


def get(api: LiveApi, address: str) -> Any:
    response = api.client.get(address)
    assert response.status_code == 200, response.text
    return response.json()


def records(jobs: Jobs) -> list[Any]:
    return [
        *jobs.server.keys(f"{jobs.keys.namespace}:job:*"),
        *jobs.server.keys(f"{jobs.keys.namespace}:batch:*"),
    ]


def assert_nothing_is_left(api: LiveApi, jobs: Jobs) -> None:
    eventually(lambda: api.staged == [])  # the service's own sweeps stage a file of theirs for a moment
    assert (api.uploads, records(jobs), count_by_state(jobs)["queued"]) == ([], [], 0)
    assert jobs.server.xlen(jobs.keys.stream("normal")) == 0


def test_many_files_become_jobs_of_one_batch(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    worker.advertise("stats", "g2l")
    response = post(api, 3, captioner="g2l", beam_size="3", priority="high", metadata='{"order": 7}')
    assert response.status_code == 202, response.text
    body = response.json()
    path = f"/batches/{body['id']}"
    assert response.headers["location"] == path
    address = f"http://127.0.0.1:{api.port}{path}"
    assert body["urls"] == {"self": address, "results": f"{address}/results.jsonl", "cancel": address}
    assert body["counts"] == {
        "total": 3, "queued": 3, "running": 0, "succeeded": 0, "failed": 0, "canceled": 0, "expired": 0,
    }  # fmt: skip
    assert body["metadata"] == {"order": 7}
    assert [(job["filename"], job["url"], job["state"]) for job in body["jobs"]] == [
        (f"clip{number}.mp4", None, "queued") for number in range(3)
    ]
    for number, entry in enumerate(body["jobs"]):
        job = jobs.get(entry["id"])
        assert job is not None
        assert api.service.blobs.read(job.upload) == f"video {number}".encode()
        assert (job.options.captioner, job.options.beam_size, job.priority) == ("g2l", 3, "high")
        assert (job.submission.batch, job.submission.metadata) == (body["id"], {"order": 7})
        assert job.submission.sha256 is not None
        assert job.filename == entry["filename"]
    eventually(lambda: api.staged == [])
    listed = get(api, f"/jobs?batch={body['id']}&limit=2")
    assert [job["filename"] for job in listed["jobs"]] == ["clip2.mp4", "clip1.mp4"]
    assert [worker.take().job.filename for _ in range(3)] == ["clip0.mp4", "clip1.mp4", "clip2.mp4"]


def test_counts_follow_the_jobs(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    path = post(api, 6).headers["location"]
    worker.succeed(worker.take())
    jobs.fail(worker.take(), WorkerLost("It fell silent."))
    worker.take()
    first = get(api, path)["jobs"][0]["id"]
    jobs.cancel(get(api, path)["jobs"][3]["id"])
    jobs.expire(first)
    assert get(api, path)["counts"] == {
        "total": 6, "queued": 2, "running": 1, "succeeded": 0, "failed": 1, "canceled": 1, "expired": 1,
    }  # fmt: skip
    jobs.server.delete(jobs.keys.job(first))  # its time is over
    body = get(api, path)
    assert (body["counts"]["expired"], body["jobs"][0]["filename"]) == (1, "clip0.mp4")


def test_canceling_a_batch_leaves_what_is_over(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    path = post(api, 4).headers["location"]
    worker.succeed(worker.take())
    running = worker.take()
    response = api.client.delete(path)
    assert response.status_code == 202
    assert int(response.headers["retry-after"]) >= 1
    states = [job["state"] for job in response.json()["jobs"]]
    assert states == ["succeeded", "running", "canceled", "canceled"]
    assert jobs.beat(running, "decode", 0.1) == "canceled"
    jobs.stop(running)
    response = api.client.delete(path)
    assert (response.status_code, response.json()["counts"]["canceled"]) == (200, 3)
    succeeded, *others = response.json()["jobs"]
    assert get(api, f"/jobs/{succeeded['id']}")["caption"] == "a dog runs"
    assert not {job["id"] for job in others[1:]} & set(api.uploads)


def test_results_are_a_job_a_line(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    body = post(api, 4).json()
    worker.succeed(worker.take())
    jobs.fail(worker.take(), WorkerLost("It fell silent."))
    response = api.client.get(body["urls"]["results"])
    assert response.headers["content-type"].partition(";")[0] == "application/jsonl"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert [line["id"] for line in lines] == [job["id"] for job in body["jobs"][:2]]
    whole = get(api, f"/jobs/{lines[0]['id']}")
    assert lines[0] == whole
    assert (lines[1]["state"], lines[1]["error"]["code"], lines[1]["batch"]) == (
        "failed", "worker_lost", body["id"],
    )  # fmt: skip
    worker.succeed(worker.take())
    jobs.server.hset(jobs.keys.job(lines[0]["id"]), "options", "{")  # a record that nobody can read
    lines = [json.loads(line) for line in api.client.get(body["urls"]["results"]).text.splitlines()]
    assert [(line["state"], (line["error"] or {}).get("code")) for line in lines] == [
        (None, "record_unreadable"), ("failed", "worker_lost"), ("succeeded", None),
    ]  # fmt: skip
    assert get(api, body["urls"]["self"])["counts"]["total"] == 4


WRONG: list[tuple[dict[str, Any], str, int]] = [
    ({"beam_size": "21"}, "invalid_option", 422),
    ({"beam_size": ["3", "4"]}, "invalid_option", 422),
    ({"beams": "3"}, "unknown_field", 422),
    ({"captioner": "blip"}, "unknown_captioner", 422),
    ({"members": "g2l"}, "invalid_option", 422),
    ({"metadata": "[]"}, "invalid_option", 422),
    ({"priority": "urgent"}, "invalid_option", 422),
    ({"url": "ftp://example.org/a.mp4"}, "invalid_option", 422),
    ({"url": ["https://example.org/a.mp4", "no address"]}, "invalid_option", 422),
    ({"url": ["https://example.org/a.mp4"] * (MOST_ITEMS - 2)}, "too_many_items", 422),
    ({"video": "clip.mp4"}, "video_missing", 422),
]


@pytest.mark.parametrize(("fields", "code", "status"), WRONG)
def test_what_is_wrong_with_one_refuses_all(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs, fields: dict[str, Any], code: str, status: int
) -> None:
    worker.advertise("stats", "g2l")
    body = assert_problem(post(api, 3, **fields), status, code)
    if code == "unknown_field":
        assert body["known"] == list(BATCH_NAMES)
    assert_nothing_is_left(api, jobs)


def test_files_that_are_refused_refuse_all(api: LiveApi, jobs: Jobs) -> None:
    def send(*sizes: int, **options: Any) -> httpx.Response:
        files = [("video", (f"clip{number}.mp4", b"x" * size)) for number, size in enumerate(sizes)]
        return api.client.post("/batches", files=files, **options)

    body = assert_problem(send(10, 0, 10), 422, "video_empty")
    assert "clip1.mp4" in body["detail"]
    assert_problem(send(10, LIMIT + 1), 413, "upload_too_large")
    assert_problem(send(LIMIT, LIMIT - 5, 10), 413, "batch_too_large")
    assert_problem(send(*[LIMIT] * 5), 413, "batch_too_large")  # by its announced length
    assert_problem(send(*[1] * (MOST_ITEMS + 1)), 422, "too_many_items")
    assert_problem(api.client.post("/batches", files={"beam_size": (None, "3")}), 422, "video_missing")
    assert_problem(send(10, params={"beam_size": 3}), 422, "option_in_query")
    assert_problem(
        api.client.post("/batches", content=b"video", headers={"content-type": "video/mp4"}),
        415,
        "not_multipart",
    )
    padding = {"metadata": " " * (OVERHEAD + 1)}
    assert api.client.post("/batches", files={"video": b"x"}, data=padding).status_code in (400, 422)
    assert_nothing_is_left(api, jobs)


def test_the_most_files_that_a_batch_may_have(api: LiveApi, jobs: Jobs) -> None:
    body = post(api, MOST_ITEMS).json()
    assert body["counts"]["queued"] == len(api.uploads) == MOST_ITEMS
    assert len({job["created_at"] for job in get(api, "/jobs?limit=200")["jobs"]}) <= MOST_ITEMS
    order = [job["filename"] for job in get(api, "/jobs?limit=200")["jobs"]]
    assert order == [f"clip{number}.mp4" for number in reversed(range(MOST_ITEMS))]


def test_the_backlog_counts_all_items(api: LiveApi, jobs: Jobs) -> None:
    assert post(api, 100).status_code == 202
    before = set(api.uploads)
    response = post(api, 51)
    assert_problem(response, 503, "backlog_full")
    assert int(response.headers["retry-after"]) > 0
    assert set(api.uploads) == before
    assert post(api, 50).status_code == 202


def test_addresses_become_jobs_too(api: LiveApi, jobs: Jobs) -> None:
    urls = ["https://example.org/films/a%20b.mp4", "https://example.org/c.mp4"]
    response = api.client.post("/batches", json={"urls": urls, "beam_size": 8, "metadata": {"a": 1}})
    assert response.status_code == 202, response.text
    entries = response.json()["jobs"]
    assert [(job["filename"], job["url"]) for job in entries] == [("a b.mp4", urls[0]), ("c.mp4", urls[1])]
    job = jobs.get(entries[1]["id"])
    assert job is not None
    assert (job.submission.source_url, job.options.beam_size) == (urls[1], 8)
    mixed = post(api, 1, url=urls).json()
    assert [job["url"] for job in mixed["jobs"]] == [None, *urls]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"beam_size": 3}, "video_missing"),
        ({"urls": []}, "video_missing"),
        ({"urls": "https://example.org/a.mp4"}, "invalid_option"),
        ({"urls": [7]}, "invalid_option"),
        ({"urls": ["https://example.org/a.mp4"], "url": "https://example.org/a.mp4"}, "unknown_field"),
        ({"urls": ["https://example.org/a.mp4"], "beams": 3}, "unknown_field"),
        ({"urls": ["https://example.org/a.mp4"], "beam_size": "3"}, "invalid_option"),
        ({"urls": ["https://example.org/a.mp4", "a.mp4"]}, "invalid_option"),
        ({"urls": ["https://example.org/a.mp4"] * (MOST_ITEMS + 1)}, "too_many_items"),
    ],
)
def test_json_that_is_wrong_is_refused(api: LiveApi, jobs: Jobs, body: Any, code: str) -> None:
    assert_problem(api.client.post("/batches", json=body), 422, code)
    assert_nothing_is_left(api, jobs)


def test_a_batch_that_is_not_there_or_not_ones_own(
    api: LiveApi, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (f"/batches/{'0' * 32}", "/batches/x", f"/batches/{'0' * 32}/results.jsonl"):
        assert_problem(api.client.get(path), 404, "unknown_batch")
    caller = Caller(key_of("ann"))
    monkeypatch.setattr("app.api.dependencies.Caller", lambda: caller)  # what a request without a key is
    body = post(api, 2).json()
    job = jobs.get(body["jobs"][0]["id"])
    assert job is not None
    assert job.submission.owner == "ann"
    assert len(get(api, f"/jobs?batch={body['id']}")["jobs"]) == 2
    caller = Caller(key_of("bob"))
    assert_problem(api.client.get(body["urls"]["self"]), 404, "unknown_batch")
    assert_problem(api.client.delete(body["urls"]["self"]), 404, "unknown_batch")
    assert get(api, f"/jobs?batch={body['id']}")["jobs"] == []


def test_a_key_has_no_more_jobs_by_a_batch(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = Caller(key_of("ann", concurrent=4, max_upload_bytes=100, max_seconds=60))
    monkeypatch.setattr("app.api.dependencies.Caller", lambda: caller)
    first = post(api, 3).json()
    job = jobs.get(first["jobs"][0]["id"])
    assert job is not None
    assert (job.submission.owner, job.submission.limits) == ("ann", caller.limits)
    before = set(api.uploads)
    assert_problem(post(api, 2), 429, "too_many_jobs")
    assert set(api.uploads) == before
    worker.succeed(worker.take())
    assert post(api, 2).status_code == 202
    assert_problem(post(api, 1), 429, "too_many_jobs")
    for _ in range(2):
        worker.succeed(worker.take())
    large = [("video", ("clip.mp4", b"x" * 101))]
    assert_problem(api.client.post("/batches", files=large), 413, "upload_too_large")


def test_a_batch_may_be_sent_again_with_its_key(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    def send(key: str, count: int = 3, **fields: Any) -> httpx.Response:
        files = [("video", (f"clip{number}.mp4", f"video {number}".encode())) for number in range(count)]
        return api.client.post("/batches", files=files, data=fields, headers={"Idempotency-Key": key})

    first = send("one")
    assert "idempotency-replayed" not in first.headers
    before = set(api.uploads)
    again = send("one")
    assert (again.status_code, again.headers["idempotency-replayed"]) == (202, "true")
    assert again.json() == first.json()
    assert (len(records(jobs)), set(api.uploads)) == (3 + 2, before)
    assert_problem(send("one", 2), 422, "idempotency_mismatch")
    assert_problem(send("one", beam_size="8"), 422, "idempotency_mismatch")
    assert send("two").json()["id"] != first.json()["id"]
    assert_problem(send("three", beam_size="99"), 422, "invalid_option")
    assert send("three").status_code == 202  # of what was refused the key stands for nothing


def test_parallel_requests_with_one_key_make_one_batch(api: LiveApi, jobs: Jobs) -> None:
    responses: list[httpx.Response] = []

    def send() -> None:
        files = [("video", (f"clip{number}.mp4", b"video")) for number in range(2)]
        with httpx.Client(base_url=api.client.base_url, timeout=30) as client:
            responses.append(client.post("/batches", files=files, headers={"Idempotency-Key": "one"}))

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {response.status_code for response in responses} <= {202, 409}
    assert len({response.json()["id"] for response in responses if response.status_code == 202}) == 1
    assert (len(records(jobs)), len(api.uploads)) == (2 + 2, 2)


def test_a_few_batches_are_received_at_a_time(api: LiveApi) -> None:
    for _ in range(AT_ONCE):
        asyncio.run(api.service.batch_turns.acquire())
    assert_problem(post(api, 1), 503, "too_many_batches")
    api.service.batch_turns.release()
    assert post(api, 1).status_code == 202


def test_a_batch_is_kept_as_long_as_its_jobs(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    body = post(api, 2).json()
    keys = (jobs.keys.batch(body["id"]), jobs.keys.batch_jobs(body["id"]))
    for _ in range(2):
        worker.succeed(worker.take())
    first, second = (job["id"] for job in body["jobs"])
    jobs.expire(second)
    assert [jobs.server.ttl(key) for key in keys] == [-1, -1]
    jobs.expire(first)
    for key in (*keys, jobs.keys.job(first)):
        assert 50 <= int(jobs.server.ttl(key)) <= 60


# ---- who dies ----


@pytest.mark.parametrize("code", ["queue_unavailable", "not_on_disk"])
def test_redis_that_takes_no_writes_leaves_nothing(
    api: LiveApi, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    if code == "not_on_disk":  # it was full only after the first files had become blobs
        monkeypatch.setattr("app.api.accepting.acceptance.hold_uploads", lambda *_: None)
    jobs.server.config_set("maxmemory", 1)
    try:
        response = post(api, 3)
    finally:
        jobs.server.config_set("maxmemory", 2**30)
    assert_problem(response, 503, code)
    assert_nothing_is_left(api, jobs)


@contextmanager
def half_a_batch(port: int) -> Iterator[None]:
    """A client that has sent one file and half of another, for as long as this is entered."""
    part = '--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
    head = (
        "POST /batches HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        "Content-Length: 3000000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"{head}{part}one\r\n{part}".encode() + b"x" * 2_000_000)
        yield


@pytest.fixture
def large(settings: Settings) -> Settings:
    return settings.model_copy(update={"max_upload_bytes": 4_000_000, "max_batch_bytes": 8_000_000})


def test_a_client_that_hangs_up_leaves_nothing(large: Settings, jobs: Jobs) -> None:
    with live_api(large) as api:
        with half_a_batch(api.port):
            eventually(lambda: len(api.staged) == 2)
        eventually(lambda: api.staged == [])
        assert_nothing_is_left(api, jobs)


#: A real API, of which one function kills the process: at its beginning, or behind its end.
DEADLY_API = """
import os, signal, sys
import uvicorn
from app.api import application
from app.jobs.batches import Batches
from app.settings import Settings

submit, is_before = Batches.submit, sys.argv[1] == "before"

def deadly(self, *arguments):
    if not is_before:
        submit(self, *arguments)
    os.kill(os.getpid(), signal.SIGKILL)

Batches.submit = deadly
settings = Settings()
app = application.create_app(settings)
uvicorn.Server(application.configuration(app, settings, int(sys.argv[2]))).run()
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class DeadlyApi:
    process: subprocess.Popen[bytes]
    port: int
    client: httpx.Client


@pytest.fixture
def deadly_api(request: pytest.FixtureRequest, large: Settings) -> Iterator[DeadlyApi]:
    """Dies ``before`` or ``behind`` the step that accepts a batch, as the test's parameter says."""
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", DEADLY_API, request.param, str(port)],
        env={**os.environ, **environment_of(large)},
    )
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        eventually(lambda: _is_alive(client), 60)
        yield DeadlyApi(process, port, client)
    process.kill()
    process.wait()


def sweep(api: LiveApi, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the service does in the minutes behind a crash."""
    monkeypatch.setattr("app.jobs.keeping.sweeper.STAGED_AGE", -1.0)
    jobs.server.delete(f"{jobs.keys.namespace}:sweeper")  # another process's turn lapses after a while
    sweeper = Sweeper(jobs, api.service.blobs, api.service.settings)
    sweeper.sweep()
    sweeper.sweep()


def _is_alive(client: httpx.Client) -> bool:
    try:
        return client.get("/livez").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("deadly_api", ["before", "behind"], indirect=True)
def test_an_api_that_is_killed_has_accepted_all_or_none(
    deadly_api: DeadlyApi, large: Settings, jobs: Jobs, request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    kept = 0 if "before" in request.node.name else 5
    files = [("video", (f"clip{number}.mp4", b"video")) for number in range(5)]
    with pytest.raises(httpx.TransportError):
        deadly_api.client.post("/batches", files=files)
    assert count_by_state(jobs)["queued"] == jobs.server.xlen(jobs.keys.stream("normal")) == kept
    with live_api(large) as api:
        sweep(api, jobs, monkeypatch)
        assert len(api.uploads) == 5
        jobs.server.zadd(jobs.keys.held_uploads, dict.fromkeys(api.uploads, 1))  # ten minutes later
        sweep(api, jobs, monkeypatch)
        assert len(api.uploads) == kept
        eventually(lambda: api.staged == [])
        listed = get(api, "/jobs")["jobs"]
        assert len(listed) == kept
        if listed:
            assert get(api, f"/batches/{listed[0]['batch']}")["counts"]["queued"] == 5
        else:
            assert_nothing_is_left(api, jobs)


@pytest.mark.parametrize("deadly_api", ["before"], indirect=True)
def test_an_api_that_is_killed_while_it_receives_leaves_nothing(
    deadly_api: DeadlyApi, large: Settings, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    with half_a_batch(deadly_api.port):
        eventually(lambda: len(list(large.staging.glob("*.part"))) == 2)
        deadly_api.process.kill()
        deadly_api.process.wait()
    with live_api(large) as api:
        sweep(api, jobs, monkeypatch)
        assert_nothing_is_left(api, jobs)
