"""What one owner leaves behind is bounded by itself: of records, sessions, results, uploads and messages."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator

import pytest
import redis

from app.access.keys import MOST_SESSIONS, KeyStore, make_key
from app.jobs.job import Keys, Submission
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_uploads import in_order_of_leaving
from app.jobs.options import CaptionOptions
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker


def submit(jobs: Jobs, owner: str | None, count: int = 1, told: dict[str, object] | None = None) -> list[str]:
    ids = [uuid.uuid4().hex for _ in range(count)]
    submission = Submission.model_validate({"owner": owner, **(told or {})})
    for job_id in ids:
        jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", submission=submission)
    return ids


def test_the_oldest_records_of_an_owner_go_where_there_are_too_many(server: redis.Redis, keys: Keys) -> None:
    jobs = Jobs(server, attempts=3, lease=10, result_ttl=60, keys=keys, max_kept=5)
    bob, waits = submit(jobs, "bob", 2), submit(jobs, "ada")
    jobs.cancel(bob[0])
    ended = submit(jobs, "ada", 4)
    for job_id in ended:
        jobs.cancel(job_id)
        server.hset(keys.delivery(job_id), "url", "https://a.example/")
        server.zadd(keys.deliveries, {job_id: 1})
    later = submit(jobs, "ada", 2)
    gone = [job_id for job_id in (*bob, *waits, *ended, *later) if jobs.get(job_id) is None]
    assert gone == ended[:2]
    left = server.zrange(f"{keys.index}:owner:ada", 0, -1)
    assert left == [*waits, *ended[2:], *later]
    assert not [key for key in server.scan_iter(f"{keys.namespace}:*") for job_id in gone if job_id in key]
    assert server.zrange(keys.deliveries, 0, -1) == sorted(ended[2:]), "nor do their messages stay"


def test_an_expired_record_is_small(jobs: Jobs, server: redis.Redis, keys: Keys) -> None:
    """One with a webhook keeps what its message may still be written of."""
    large: dict[str, object] = {
        "metadata": {"note": "x" * 4000},
        "source_url": "https://a.example/" + "y" * 1900,
    }
    plain, hooked = (
        submit(jobs, "ada", told=large)[0],
        submit(jobs, "ada", told={**large, "webhook": "https://b.example/"})[0],
    )
    for job_id in (plain, hooked):
        jobs.cancel(job_id)
        assert jobs.expire(job_id)
    sizes = [int(server.memory_usage(keys.job(job_id), samples=0) or 0) for job_id in (plain, hooked)]
    assert sizes[0] < 1500 < 6000 < sizes[1]
    job = jobs.get(plain)
    assert job is not None
    assert job.submission == Submission(owner="ada")


def test_a_key_has_so_many_sessions_and_no_more(server: redis.Redis, keys: Keys) -> None:
    store, (key, _) = KeyStore(server, keys), make_key("ada")
    secrets = [store.open_session(key)[0] for _ in range(MOST_SESSIONS + 2)]
    assert [store.key_of_session(secret) for secret in secrets] == [None] * 2 + [key.id] * MOST_SESSIONS


def test_who_has_most_gives_way_first() -> None:
    sizes = {"ada1": 3, "bob1": 4, "ada2": 3, "ada3": 3, "ada4": 3}
    owners = {name: name[:3] for name in sizes}
    assert list(in_order_of_leaving(sizes, owners)) == ["ada1", "ada2", "ada3", "bob1", "ada4"]


@pytest.fixture
def locked(settings: Settings) -> Iterator[LiveApi]:
    changed = {"access": "keys", "max_followed": 2, "max_backlog": 100}
    with live_api(settings.model_copy(update=changed)) as running:
        yield running


def headers_of(api: LiveApi, name: str, **terms: object) -> dict[str, str]:
    key, token = make_key(name, **terms)
    api.service.keys.store.add(key)
    return {"Authorization": f"Bearer {token}"}


def test_one_key_s_followers_leave_room_for_another_s(locked: LiveApi) -> None:
    ada, bob = headers_of(locked, "ada"), headers_of(locked, "bob")
    hers, his = (send(locked, headers=headers).headers["location"] for headers in (ada, bob))
    streams = [
        locked.client.send(locked.client.build_request("GET", f"{hers}/events", headers=ada), stream=True)
        for _ in range(2)
    ]
    assert [stream.status_code for stream in streams] == [200, 200]
    assert_problem(locked.client.get(f"{hers}/events", headers=ada), 429, "key_follows_enough")
    held = {**ada, "If-None-Match": locked.client.get(hers, headers=ada).headers["etag"], "Prefer": "wait=20"}
    assert_problem(locked.client.get(hers, headers=held), 429, "key_follows_enough")
    began = time.monotonic()
    at_once = send(locked, headers={**ada, "Prefer": "wait=20"})  # accepted, and not waited for
    assert (at_once.status_code, time.monotonic() - began < 10) == (202, True)
    with locked.client.stream("GET", f"{his}/events", headers=bob) as stream:
        assert stream.status_code == 200
    for stream in streams:
        stream.close()


def test_to_go_before_others_is_a_right_of_a_key(locked: LiveApi) -> None:
    ada, bob = headers_of(locked, "ada", high=False), headers_of(locked, "bob")
    assert_problem(send(locked, headers=ada, priority="high"), 403, "key_scope")
    batch = {"urls": ["https://a.example/1.mp4"], "priority": "high"}
    assert_problem(locked.client.post("/batches", json=batch, headers=ada), 403, "key_scope")
    assert send(locked, headers=bob, priority="high").status_code == 202
    assert send(locked, headers=ada, priority="low").status_code == 202


def test_a_worker_s_results_count_for_their_owner(jobs: Jobs, locked: LiveApi) -> None:
    worker = ScriptedWorker(jobs, locked.service.blobs)
    location = send(locked, headers=headers_of(locked, "ada")).headers["location"]
    worker.succeed(worker.take())
    job_id = location.rpartition("/")[2]
    owner = jobs.get(job_id)
    assert owner is not None
    assert jobs.index.owners([job_id, "nobody"]) == {job_id: owner.submission.owner, "nobody": ""}
