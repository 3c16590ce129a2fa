"""What people say of captions is kept with the job, and given on for judging and for training."""

from __future__ import annotations

import json

from tests.app.live_api import LiveApi, assert_problem, finished, send
from tests.app.scripted_worker import ScriptedWorker


def test_what_was_said_is_kept_with_the_job_and_listed_for_judging_and_training(
    api: LiveApi, worker: ScriptedWorker
) -> None:
    location = finished(api, worker)
    job, caption = location.rpartition("/")[2], api.client.get(location).json()["caption"]
    for said in (
        {"verdict": "wrong", "correction": "  a dog in the snow "},
        {"verdict": "partly"},
        {"verdict": "right"},
    ):
        assert api.client.post(f"{location}/verdicts", json=said).status_code == 201
    lines = [json.loads(line) for line in api.client.get("/verdicts").text.splitlines()]
    ours = [line for line in lines if line["job"] == job]
    assert [line["verdict"] for line in ours] == ["wrong", "partly", "right"]
    assert {line["caption"] for line in ours} == {caption}
    pairs = api.client.get("/verdicts?shape=captions").json()
    assert pairs == [{"file": ours[0]["file"], "caption": text} for text in ("a dog in the snow", caption)]
    api.client.delete(location)
    assert job not in api.client.get("/verdicts").text


def test_a_verdict_that_is_sent_again_is_kept_once(api: LiveApi, worker: ScriptedWorker) -> None:
    location, headers = finished(api, worker), {"Idempotency-Key": "once"}
    first, again = (
        api.client.post(f"{location}/verdicts", json={"verdict": "right"}, headers=headers) for _ in range(2)
    )
    assert (first.status_code, again.json()) == (201, first.json())
    other = api.client.post(f"{location}/verdicts", json={"verdict": "wrong"}, headers=headers)
    assert_problem(other, 422, "idempotency_mismatch")
    assert api.client.get("/verdicts").text.count(location.rpartition("/")[2]) == 1


def test_every_post_that_makes_something_may_be_sent_again(api: LiveApi) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    making = {path: each["post"] for path, each in paths.items() if "post" in each}
    # a session may be opened twice, a test is sent each time, a file of which nothing comes goes by itself
    passing = {"/session", "/webhooks/test", "/files"}
    assert {
        path for path, post in making.items()
        if "idempotency-key" not in [each["name"].lower() for each in post.get("parameters", [])]
    } == passing  # fmt: skip


def test_only_a_caption_can_be_judged_and_only_so(api: LiveApi, worker: ScriptedWorker) -> None:
    waiting = send(api).headers["location"]
    assert_problem(api.client.post(f"{waiting}/verdicts", json={"verdict": "right"}), 409, "job_not_finished")
    worker.succeed_all()
    assert_problem(api.client.post(f"{waiting}/verdicts", json={"verdict": "so-so"}), 422, "invalid_request")
