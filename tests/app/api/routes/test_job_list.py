"""``GET /jobs`` over a socket."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from app.access.keys import make_key
from app.api.dependencies import Caller
from app.errors import WorkerLost
from app.jobs.job import Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker


@pytest.fixture
def roomy(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"max_backlog": 1000})) as running:
        yield running


def get(api: LiveApi, **query: Any) -> Any:
    response = api.client.get("/jobs", params=query)
    assert response.status_code == 200, response.text
    return response.json()


def submit(jobs: Jobs, **submission: Any) -> str:
    job_id = uuid.uuid4().hex
    return jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", submission=Submission(**submission)).id


def test_a_list_tells_of_each_job_in_short(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    worker.advertise("stats")
    first = send(api, captioner="stats").json()["id"]
    worker.succeed(worker.take())
    second = submit(jobs, metadata={"order": 7}, batch="b" * 32)
    jobs.fail(worker.take(), WorkerLost("It fell silent."))
    waiting = submit(jobs)
    body = get(api)
    assert body["next"] is None
    assert [job["id"] for job in body["jobs"]] == [waiting, second, first]
    succeeded, failed = body["jobs"][2], body["jobs"][1]
    whole = api.client.get(f"/jobs/{first}").json()
    for name in ("state", "stage", "progress", "created_at", "started_at", "ended_at", "attempt", "filename"):
        assert succeeded[name] == whole[name]
    assert (succeeded["caption"], succeeded["captioner"], succeeded["duration"]) == (
        "a dog runs",
        "stats",
        4.0,
    )
    assert (failed["error"]["code"], failed["metadata"], failed["batch"]) == (
        "worker_lost", {"order": 7}, "b" * 32,
    )  # fmt: skip
    assert (failed["caption"], failed["captioner"], failed["duration"]) == (None, None, None)


def test_pages_are_linked(roomy: LiveApi) -> None:
    sent = [send(roomy).json()["id"] for _ in range(5)]
    response = roomy.client.get("/jobs", params={"limit": 2, "created_after": "2020-01-01T00:00:00+01:00"})
    listed = [job["id"] for job in response.json()["jobs"]]
    while "link" in response.headers:
        assert response.links["next"]["url"].startswith("/jobs?")
        assert response.json()["next"] in response.links["next"]["url"].replace("%3D", "=")
        send(roomy)
        response = roomy.client.get(response.links["next"]["url"])
        listed += [job["id"] for job in response.json()["jobs"]]
    assert listed == sent[::-1]
    assert response.json()["next"] is None


def test_a_list_is_filtered(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    worker.advertise("stats", "g2l")
    first = send(api, captioner="g2l").json()["id"]
    second = send(api, captioner="stats").json()["id"]
    worker.succeed(worker.take())
    at = {job["id"]: job["created_at"] for job in get(api)["jobs"]}

    def found(**query: Any) -> list[str]:
        return [job["id"] for job in get(api, **query)["jobs"]]

    assert found(state="queued") == [second]
    assert found(state="succeeded,queued,failed") == [second, first]
    assert found(state=["succeeded", "queued"]) == [second, first]
    assert found(captioner="g2l") == [first]
    assert found(captioner="g2l", state="queued") == []
    assert found(batch="b" * 32) == []
    assert found(created_before=at[first]) == []
    assert found(created_after=at[first], created_before="2100-01-01T00:00:00Z") == [second, first]


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ({"state": "paused"}, "invalid_option"),
        ({"state": "queued,"}, "invalid_option"),
        ({"state": ""}, "invalid_option"),
        ({"limit": 0}, "invalid_request"),
        ({"limit": 201}, "invalid_request"),
        ({"limit": [2, 3]}, "invalid_option"),
        ({"created_after": "yesterday"}, "invalid_request"),
        ({"created_after": "0001-01-01T00:00:00+14:00", "limit": "1"}, "invalid_request"),
        ({"created_before": "9999-12-31T23:59:59-14:00", "limit": "1"}, "invalid_request"),
        ({"created_after": "2026-11-29T09:00:00"}, "invalid_request"),  # of which zone?
        ({"batch": "../.."}, "invalid_request"),
        ({"sort": "name"}, "invalid_request"),
        ({"cursor": "nothing"}, "invalid_cursor"),
        ({"cursor": "bm8gbnVtYmVy"}, "invalid_cursor"),
    ],
)
def test_what_a_list_is_not_asked_for_is_refused(api: LiveApi, query: dict[str, Any], code: str) -> None:
    body = assert_problem(api.client.get("/jobs", params=query), 422, code)
    if code != "invalid_cursor":
        assert next(iter(query)) in body["detail"]


def test_a_state_that_there_is_not_is_answered_with_those_that_there_are(api: LiveApi) -> None:
    body = assert_problem(api.client.get("/jobs?state=queued,foo"), 422, "invalid_option")
    assert body["detail"] == "state: there is no state called foo."
    assert body["known"] == ["queued", "running", "succeeded", "failed", "canceled", "expired"]


def test_a_key_sees_its_own_jobs_alone(api: LiveApi, jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = submit(jobs, owner="ann", batch="b" * 32), submit(jobs, owner="bob", batch="b" * 32)
    nobodys = submit(jobs)
    key = make_key("ann")[0].model_copy(update={"id": "ann"})
    caller = Caller(key)
    monkeypatch.setattr("app.api.dependencies.Caller", lambda: caller)  # what a request without a key is
    assert [job["id"] for job in get(api)["jobs"]] == [mine]
    assert [job["id"] for job in get(api, state="queued")["jobs"]] == [mine]
    caller = Caller(key.model_copy(update={"scopes": ("admin",)}))
    assert [job["id"] for job in get(api)["jobs"]] == [nobodys, other, mine]


def test_a_list_is_read_where_redis_takes_no_writes(api: LiveApi, jobs: Jobs) -> None:
    kept, gone = submit(jobs), submit(jobs)
    jobs.server.delete(jobs.keys.job(gone))
    jobs.server.config_set("maxmemory", 1)
    try:
        assert [job["id"] for job in get(api)["jobs"]] == [kept]
    finally:
        jobs.server.config_set("maxmemory", 2**30)
