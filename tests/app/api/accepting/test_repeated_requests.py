"""A request that is sent again with its key makes no second job, whatever happened to the first."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import pytest
import redis

from app.api.accepting import repeated_request
from app.jobs import idempotency
from app.jobs.idempotency import IdempotencyKeys, Reservation
from app.jobs.job_store import Jobs
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.workers import eventually

KEY = {"Idempotency-Key": "4f2c"}


@pytest.fixture
def keys_of(jobs: Jobs) -> IdempotencyKeys:
    return IdempotencyKeys(jobs.server, jobs.keys)


def jobs_in(jobs: Jobs) -> list[str]:
    server: redis.Redis = jobs.server
    return list(server.scan_iter(f"{jobs.keys.namespace}:job:*"))


def test_the_same_request_is_answered_by_the_same_job(api: LiveApi, jobs: Jobs) -> None:
    first = send(api, headers=KEY, beam_size=3)
    again = api.client.post(
        "/caption", files={"video": ("renamed.mp4", b"a video")}, data={"beam_size": "3"}, headers=KEY
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json() == again.json()
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert again.headers["location"] == first.headers["location"]
    assert (len(jobs_in(jobs)), len(api.uploads), api.staged) == (1, 1, [])


def test_a_repeated_request_may_wait_for_its_job(api: LiveApi, worker: ScriptedWorker) -> None:
    first = send(api, headers=KEY)
    worker.succeed(worker.take())
    again = send(api, headers=KEY | {"Prefer": "wait=5"})
    assert (again.status_code, again.json()["state"]) == (200, "succeeded")
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotency-replayed"] == "true"


@pytest.mark.parametrize(
    "other", [{"data": b"another"}, {"beam_size": 3}, {"metadata": "{}"}, {"priority": "high"}]
)
def test_another_request_with_the_key_is_refused(api: LiveApi, jobs: Jobs, other: dict[str, object]) -> None:
    send(api, headers=KEY)
    assert_problem(send(api, headers=KEY, **other), 422, "idempotency_mismatch")  # type: ignore[arg-type]
    assert (len(jobs_in(jobs)), len(api.uploads), api.staged) == (1, 1, [])
    assert send(api, headers={"Idempotency-Key": "other"}, **other).status_code == 202  # type: ignore[arg-type]


def test_a_url_and_a_body_are_requests_like_forms(api: LiveApi) -> None:
    for one, other in (("https://a.example/1", "https://a.example/2"), ("https://b.example/1", "ftp://b")):
        key = {"Idempotency-Key": one}
        ids = {
            api.client.post("/caption", json={"url": one}, headers=key).json()["id"],
            api.client.post("/caption", files={"url": (None, one)}, headers=key).json()["id"],
        }
        assert len(ids) == 1
        assert api.client.post("/caption", json={"url": other}, headers=key).status_code == 422
    raw = {"content-type": "video/mp4", "Idempotency-Key": "raw"}
    posts = [api.client.post("/caption", content=b"a video", headers=raw) for _ in range(2)]
    assert posts[0].json()["id"] == posts[1].json()["id"]


def test_parallel_requests_to_two_servers_make_one_job(api: LiveApi, settings: Settings, jobs: Jobs) -> None:
    with live_api(settings) as second, ThreadPoolExecutor(8) as pool:
        started = threading.Barrier(8)

        def post(number: int) -> httpx.Response:
            started.wait()
            data = b"x" * 200_000
            response: httpx.Response = send((api, second)[number % 2], data, KEY)
            while response.status_code == 409:
                assert_problem(response, 409, "idempotency_in_progress")
                assert int(response.headers["retry-after"]) > 0
                time.sleep(0.05)
                response = send((api, second)[number % 2], data, KEY)
            return response

        answers = list(pool.map(post, range(8)))
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
    assert (len(jobs_in(jobs)), len(api.uploads), api.staged) == (1, 1, [])


def test_a_refused_request_leaves_its_key_free(api: LiveApi) -> None:
    assert_problem(send(api, b"", KEY), 422, "video_empty")
    assert_problem(send(api, headers=KEY, beam_size="many"), 422, "invalid_option")
    assert send(api, headers=KEY).status_code == 202


@pytest.fixture
def half_sent(api: LiveApi) -> Iterator[socket.socket]:
    head = (
        "POST /caption HTTP/1.1\r\nHost: localhost\r\nContent-Type: video/mp4\r\n"
        "Idempotency-Key: 4f2c\r\nContent-Length: 200000\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", api.port)) as client:
        client.sendall(head.encode() + b"x" * 50_000)
        eventually(lambda: len(api.staged) == 1)
        yield client


def test_a_first_request_that_still_comes_in_is_said_to(api: LiveApi, half_sent: socket.socket) -> None:
    assert_problem(send(api, headers=KEY), 409, "idempotency_in_progress")
    half_sent.close()  # the client hung up, and its key is free
    eventually(lambda: send(api, headers=KEY).status_code == 202)


def test_a_slow_first_request_keeps_its_key(
    api: LiveApi, half_sent: socket.socket, monkeypatch: pytest.MonkeyPatch, jobs: Jobs
) -> None:
    monkeypatch.setattr(idempotency, "RESERVED_SECONDS", 0.5)
    monkeypatch.setattr(repeated_request, "RENEW_SECONDS", 0.1)
    for _ in range(10):
        half_sent.sendall(b"x" * 5_000)
        time.sleep(0.15)
    assert_problem(send(api, headers=KEY), 409, "idempotency_in_progress")


def test_a_process_that_was_killed_blocks_its_key_for_a_moment(
    api: LiveApi, keys_of: IdempotencyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "RESERVED_SECONDS", 1.0)
    killed = keys_of.reserve("4f2c", None)
    assert isinstance(killed, Reservation)
    assert_problem(send(api, headers=KEY), 409, "idempotency_in_progress")
    eventually(lambda: send(api, headers=KEY).status_code == 202, 5)


def test_who_is_late_finds_the_other_s_job(api: LiveApi, keys_of: IdempotencyKeys, jobs: Jobs) -> None:
    """Its reservation lapsed while it was frozen, and the client's second try has made the job."""
    late = keys_of.reserve("4f2c", None)
    assert isinstance(late, Reservation)
    jobs.server.delete(late.key)
    job_id = send(api, headers=KEY).json()["id"]
    again = replace(late, fingerprint="x")
    with pytest.raises(idempotency.KeyTaken):
        jobs.submit("late", jobs.get(job_id).options, "uploads/late", reservation=again)  # type: ignore[union-attr]
    assert jobs.get("late") is None
    keys_of.release(late)
    assert send(api, headers=KEY).json()["id"] == job_id


def test_a_key_lasts_as_long_as_its_result(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    location = send(api, headers=KEY).headers["location"]
    worker.succeed(worker.take())
    api.client.delete(location)  # the result is gone, and the record says so
    again = send(api, headers=KEY)
    assert (again.status_code, again.headers["location"] == location) == (202, False)
    jobs.server.delete(*jobs_in(jobs))
    assert "idempotency-replayed" not in send(api, headers=KEY).headers


def test_keys_of_two_owners_are_two(keys_of: IdempotencyKeys) -> None:
    reservations = [keys_of.reserve("4f2c", owner) for owner in (None, "a", "b")]
    assert all(isinstance(each, Reservation) for each in reservations)
    assert keys_of.reserve("4f2c", "a") is None


def test_a_job_that_could_not_be_kept_frees_its_key(api: LiveApi, server: redis.Redis, jobs: Jobs) -> None:
    kept, jobs_submit = list[str](), api.service.jobs._check_flushed

    def not_flushed(job_ids: list[str], _flushed: object) -> None:
        kept.extend(job_ids)
        jobs_submit(job_ids, redis.RedisError("the disk is slow"))

    object.__setattr__(api.service.jobs, "_check_flushed", not_flushed)
    assert_problem(send(api, headers=KEY), 503, "not_on_disk")
    object.__setattr__(api.service.jobs, "_check_flushed", jobs_submit)
    again = send(api, headers=KEY)
    assert again.status_code == 202
    assert again.json()["id"] not in kept
    assert "idempotency-replayed" not in again.headers


@pytest.mark.parametrize("key", ["", "x" * 256, "a\tb"])
def test_a_key_that_is_none_is_refused(api: LiveApi, key: str) -> None:
    assert_problem(send(api, headers={"Idempotency-Key": key}), 422, "invalid_request")


def test_a_repetition_is_answered_while_the_backlog_is_full(api: LiveApi) -> None:
    first = send(api, headers=KEY)
    for _ in range(4):
        send(api)
    assert_problem(send(api), 503, "backlog_full")
    assert send(api, headers=KEY).json() == first.json()
