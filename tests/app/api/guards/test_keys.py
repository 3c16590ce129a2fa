"""Who may ask where keys are needed: every route, before its body is read; jobs are their key's alone."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import iter_route_contexts

from app.access import key_ring
from app.access.keys import make_key
from app.api.application import create_app
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker

#: What needs no key: the page and what it is made of, whether the service lives, signing in.
OPEN = {"/", "/livez", "/readyz", "/session", "/docs", "/reference", "/openapi.json"}


@pytest.fixture
def locked(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"access": "keys"})) as running:
        yield running


def bearer(api: LiveApi, name: str = "ada", **terms: Any) -> dict[str, str]:
    """Makes a key; returns the header that it is sent by."""
    key, token = make_key(name, **terms)
    api.service.keys.store.add(key)
    return {"Authorization": f"Bearer {token}"}


def operations() -> list[tuple[str, str]]:
    """Lists every route's path, with its parts filled in, and method."""
    app = create_app(Settings(redis_url="redis://127.0.0.1"))
    return sorted(
        (re.sub(r"\{[^}]*\}", "0" * 32, str(context.path)), method)
        for context in iter_route_contexts(app.router.routes)
        for method in context.methods or ()
    )


# ---- every route ----


def test_every_route_refuses_who_has_no_key_or_a_wrong_one(locked: LiveApi) -> None:
    # A film's address is a page, which tells nothing of the job where keys are needed.
    pages = ("/f/", "/static/")
    routes = [
        (path, method) for path, method in operations() if path not in OPEN and not path.startswith(pages)
    ]
    assert ("/caption", "POST") in routes
    assert ("/metrics", "GET") in routes
    unknown = {"Authorization": f"Bearer {make_key('eve')[1]}"}
    for path, method in routes:
        response = locked.client.request(method, path)
        assert response.status_code == 401, (method, path)
        assert response.headers["www-authenticate"] == 'Bearer realm="reelword"'
        if method != "HEAD":
            assert response.json()["code"] == "key_missing"
        response = locked.client.request(method, path, headers=unknown)
        assert response.status_code == 401, (method, path)
        assert 'error="invalid_token"' in response.headers["www-authenticate"]


def test_what_is_open_is_answered_without_a_key(locked: LiveApi) -> None:
    (script,) = re.findall(r'src="(/static/[^"]*/page.js)"', locked.client.get("/").text)
    for path in (*OPEN, script, "/static-offline-docs/swagger-ui.css"):
        assert locked.client.get(path).status_code in (200, 503), path


def test_paths_that_do_not_exist_tell_nobody_so(locked: LiveApi) -> None:
    assert locked.client.get("/nowhere").status_code == 401
    assert locked.client.put("/static/../caption").status_code == 401
    assert locked.client.get("/nowhere", headers=bearer(locked)).status_code == 404


def test_nobody_needs_a_key_on_loopback(api: LiveApi) -> None:
    assert send(api).status_code == 202
    assert send(api, headers={"Authorization": "Bearer of tidings"}).status_code == 202


@pytest.mark.parametrize("header", ["Basic YWRhOng=", "Bearer", "Bearer rw_1_2", "rw_1_2", "Bearer \xff"])
def test_other_ways_of_asking_are_refused(locked: LiveApi, header: str) -> None:
    response = locked.client.get("/models", headers=[(b"Authorization", header.encode("latin-1"))])
    assert (response.status_code, response.json()["code"][:4]) == (401, "key_")


def test_a_refusal_does_not_wait_for_the_body(locked: LiveApi) -> None:
    client = http.client.HTTPConnection("127.0.0.1", locked.port, timeout=20)
    client.putrequest("POST", "/caption")
    client.putheader("Content-Type", "multipart/form-data; boundary=b")
    client.putheader("Content-Length", "250000")
    client.endheaders()  # and not a byte of the body
    began = time.monotonic()
    assert client.getresponse().status == 401
    assert time.monotonic() - began < 10
    client.close()
    assert locked.uploads == []


# ---- scopes ----


@pytest.mark.parametrize(
    ("scopes", "may_read", "may_write", "may_count"),
    [
        (("read",), True, False, False),
        (("write",), False, True, False),
        (("read", "write"), True, True, False),
        (("admin",), True, True, True),
    ],
)
def test_scopes_are_by_method(
    locked: LiveApi, scopes: tuple[str, ...], may_read: bool, may_write: bool, may_count: bool
) -> None:
    key = bearer(locked, scopes=scopes)
    answers = [
        (locked.client.get("/models", headers=key), may_read),
        (send(locked, headers=key), may_write),
        (locked.client.get("/metrics", headers=key), may_count),
    ]
    for response, may in answers:
        if may:
            assert response.status_code in (200, 202)
        else:
            assert_problem(response, 403, "key_scope")
            assert 'error="insufficient_scope"' in response.headers["www-authenticate"]


def test_metrics_may_be_opened_alone(settings: Settings) -> None:
    changed = {"access": "keys", "metrics_access": "open"}
    with live_api(settings.model_copy(update=changed)) as api:
        assert api.client.get("/metrics").status_code == 200
        assert api.client.get("/models").status_code == 401


def test_a_revoked_key_opens_nothing_soon_after(locked: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_ring, "FRESH_SECONDS", 0.2)
    key = bearer(locked)
    assert locked.client.get("/models", headers=key).status_code == 200
    (key_id,) = locked.service.keys.store.all()
    locked.service.keys.store.revoke(key_id)
    time.sleep(0.25)
    assert_problem(locked.client.get("/models", headers=key), 401, "key_wrong")


# ---- whose jobs ----


def test_jobs_are_their_key_s_and_the_admin_s(locked: LiveApi, worker: ScriptedWorker) -> None:
    ada, eve = bearer(locked, "ada"), bearer(locked, "eve")
    admin = bearer(locked, "root", scopes=("admin",))
    location = send(locked, headers=ada).headers["location"]
    worker.succeed(worker.take())
    for path in ("", "/attention", "/attention.png", "/frames/0.jpg", "/captions.vtt"):
        assert_problem(locked.client.get(location + path, headers=eve), 404, "unknown_job")
        assert locked.client.get(location + path, headers=ada).status_code == 200, path
        assert locked.client.get(location + path, headers=admin).status_code == 200, path
    assert_problem(locked.client.delete(location, headers=eve), 404, "unknown_job")
    assert locked.client.delete(location, headers=ada).json()["state"] == "expired"


def test_a_foreign_job_is_told_as_one_that_is_not_there(locked: LiveApi) -> None:
    location = send(locked, headers=bearer(locked, "ada")).headers["location"]
    eve = bearer(locked, "eve")
    foreign = locked.client.get(location, headers=eve).json()
    none = locked.client.get(f"/jobs/{'0' * 32}", headers=eve).json()
    same = ("type", "title", "status", "code", "hint")
    assert [foreign[name] for name in same] == [none[name] for name in same]


@pytest.fixture
def worker(locked: LiveApi, jobs: Any) -> ScriptedWorker:
    return ScriptedWorker(jobs, locked.service.blobs)


# ---- how much ----


def test_beyond_its_rate_a_key_is_told_when_to_come_back(locked: LiveApi) -> None:
    key = bearer(locked, rate="2/minute")
    first, second, third = (send(locked, headers=key) for _ in range(3))
    assert [response.status_code for response in (first, second)] == [202, 202]
    assert first.headers["ratelimit-policy"] == '"key";q=2;w=60'
    assert first.headers["ratelimit"].startswith('"key";r=1;t=')
    assert_problem(third, 429, "rate_limited")
    assert 0 < int(third.headers["retry-after"]) <= 60
    assert third.headers["ratelimit"].startswith('"key";r=0;t=')
    assert locked.client.get("/models", headers=key).status_code == 200, "reading has a rate of its own"
    assert send(locked, headers=bearer(locked, "eve", rate="2/minute")).status_code == 202


def test_a_key_has_only_so_many_jobs_at_once(locked: LiveApi, worker: ScriptedWorker) -> None:
    ada, eve = bearer(locked, "ada", concurrent=1), bearer(locked, "eve", concurrent=1)
    assert send(locked, headers=ada).status_code == 202
    refused = send(locked, headers=ada)
    assert_problem(refused, 429, "too_many_jobs")
    assert int(refused.headers["retry-after"]) > 0
    assert send(locked, headers=eve).status_code == 202
    assert len(locked.uploads) == 2
    worker.succeed_all()
    assert send(locked, headers=ada).status_code == 202


def test_a_batch_counts_as_all_its_jobs(locked: LiveApi) -> None:
    key = bearer(locked, concurrent=3, max_seconds=30, max_upload_bytes=1000)
    two = [("video", ("a.mp4", b"data")), ("video", ("b.mp4", b"more"))]
    assert locked.client.post("/batches", files=two, headers=key).status_code == 202
    assert_problem(locked.client.post("/batches", files=two, headers=key), 429, "too_many_jobs")
    assert len(locked.uploads) == 2
    assert send(locked, headers=key).status_code == 202
    for name in locked.uploads:
        job = locked.service.jobs.get(name)
        assert job is not None
        assert job.submission.limits is not None
        assert job.submission.limits.seconds == 30
    large = [("video", ("a.mp4", b"x" * 1001))]
    other = bearer(locked, "other", max_upload_bytes=1000)
    assert_problem(locked.client.post("/batches", files=large, headers=other), 413, "upload_too_large")


def test_a_key_has_its_own_largest_upload(locked: LiveApi) -> None:
    small = bearer(locked, "small", max_upload_bytes=1000)
    large = bearer(locked, "large", max_upload_bytes=10**9)
    assert send(locked, b"x" * 1000, headers=small).status_code == 202
    body = assert_problem(send(locked, b"x" * 1001, headers=small), 413, "upload_too_large")
    assert "1000 bytes" in body["detail"]
    assert_problem(send(locked, b"x" * 400_000, headers=large), 413, "upload_too_large")


def test_a_job_carries_its_key_s_limits(locked: LiveApi, worker: ScriptedWorker) -> None:
    key = bearer(locked, max_seconds=30, max_pixels=10**6)
    send(locked, headers=key)
    submission = worker.take().job.submission
    assert submission.limits is not None
    assert (submission.limits.seconds, submission.limits.pixels) == (30, 10**6)
    assert submission.owner in locked.service.keys.store.all()


def test_results_may_be_kept_by_their_owner_s_browser_alone(locked: LiveApi, worker: ScriptedWorker) -> None:
    locked.client.headers.update(bearer(locked))
    cached = locked.client.get(f"{finished(locked, worker)}/attention").headers["cache-control"]
    assert "private" in cached
