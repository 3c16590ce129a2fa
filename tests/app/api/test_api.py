"""The HTTP contract over a socket: a real server, a real Redis, a worker that does what the test says."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from app.api import refusals
from app.api.receiving.bodies import FORM_NAMES
from app.api.routes import submit
from app.api.routes.submit import preferred_wait
from app.jobs.blobs import Blobs
from app.jobs.captioner_info import CaptionerInfo, SpeedInfo
from app.jobs.job_store import Jobs
from app.jobs.options import FORM_FIELDS, CaptionerChoice
from app.settings import Settings
from tests.app.live_api import LIMIT, LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker

# ---- sending ----


def test_an_upload_becomes_a_job(api: LiveApi, jobs: Jobs) -> None:
    response = send(api, b"the bytes", beam_size=3, num_captions=2, max_length=12, attention="false")
    assert response.status_code == 202
    body = response.json()
    path, base = f"/jobs/{body['id']}", f"http://127.0.0.1:{api.port}"
    assert body["state"] == "queued"
    assert body["urls"] == {
        "self": f"{base}{path}",
        "web": f"{base}/f/{body['id']}",
        "attention": None,  # it was not asked for
        "attention_png": None,
        "captions_vtt": None,  # there are none yet
        "video": f"{base}{path}/video",
        "events": f"{base}{path}/events",
        "recaption": f"{base}{path}/recaption",
        "cancel": f"{base}{path}",
    }
    assert response.headers["location"] == path
    assert int(response.headers["retry-after"]) >= 1
    job = jobs.get(body["id"])
    assert job is not None
    options = {"beam_size": 3, "num_captions": 2, "max_length": 12, "attention": False}
    assert job.options.model_dump(include=set(options)) == options
    assert api.service.blobs.read(job.upload) == b"the bytes"
    assert api.staged == []


WRONG_OPTIONS: list[tuple[dict[str, Any], str, list[str] | None]] = [
    ({"beam_size": 21}, "invalid_option", None),
    ({"beam_size": "many"}, "invalid_option", None),
    ({"num_captions": 6}, "invalid_option", None),
    ({"max_length": 0}, "invalid_option", None),
    ({"attention": "maybe"}, "invalid_option", ["true", "false"]),
    ({"beams": 3}, "unknown_field", list(FORM_NAMES)),
    ({"captioner": "blip"}, "unknown_captioner", ["g2l", "stats"]),
    ({"captioner": "fusion"}, "embedding_missing", ["g2l", "stats"]),
    ({"members": "g2l"}, "invalid_option", None),
    ({"members": "g2l", "captioner": "stats"}, "invalid_option", None),
    ({"members": "g2l,,stats", "captioner": "fusion"}, "invalid_option", None),
    ({"members": "g2l,stats,g2l", "captioner": "ensemble"}, "invalid_option", None),
    ({"url": "http://example.org/a.mp4"}, "several_videos", None),
]


def test_wrong_options_are_refused_with_the_known_ones(api: LiveApi, worker: ScriptedWorker) -> None:
    worker.advertise("stats", "g2l")
    for options, code, names in WRONG_OPTIONS:
        body = assert_problem(send(api, **options), 422, code)
        assert body.get("known") == names
        assert next(iter(options)) in body["detail"]
    assert (api.staged, api.uploads) == ([], [])


def test_a_captioner_of_segments_that_no_worker_has_is_refused(api: LiveApi, worker: ScriptedWorker) -> None:
    worker.advertise("stats", "g2l")
    assert send(api, segment_captioner="g2l").status_code == 202
    body = assert_problem(send(api, segment_captioner="blip"), 422, "unknown_captioner")
    assert body["known"] == ["g2l", "stats"]


def test_members_that_cannot_write_together_are_refused(api: LiveApi, worker: ScriptedWorker) -> None:
    def info(name: str, vocabulary: str, weights: str) -> CaptionerInfo:
        spec = {"network": "net", "weights_sha256": weights, "preprocessing": ""}
        return CaptionerInfo(
            name=name, weights_sha256="0" * 64, features={"grid": spec}, vocabulary=vocabulary
        )

    infos = [info("stats", "v", "1"), info("g2l", "w", "1"), info("refocus", "v", "2")]
    worker.advertise(*infos, "fusion", "ensemble")
    assert send(api, captioner="fusion", members="g2l,stats").status_code == 202
    body = assert_problem(send(api, captioner="ensemble", members="g2l,stats"), 422, "invalid_members")
    assert "g2l and stats were trained on different vocabularies" in body["detail"]
    body = assert_problem(send(api, captioner="fusion", members="stats,refocus"), 422, "invalid_members")
    assert "stats and refocus were trained on different features called grid" in body["detail"]
    body = assert_problem(send(api, captioner="fusion", members="stats,blip"), 422, "unknown_captioner")
    assert body["known"] == ["g2l", "refocus", "stats"]
    assert "blip" in body["detail"]


def test_a_pretrained_captioner_is_a_member_of_fusion_alone(api: LiveApi, worker: ScriptedWorker) -> None:
    git = CaptionerInfo(name="git", kind="git", weights_sha256="0" * 64, features={}, source="owner/git")
    worker.advertise("stats", git, "fusion", "ensemble")
    member_of = {one["name"]: one["member_of"] for one in api.client.get("/models").json()["captioners"]}
    both = ["fusion", "ensemble"]
    assert member_of == {"stats": both, "git": ["fusion"], "fusion": [], "ensemble": []}
    assert send(api, captioner="fusion", members="stats,git").status_code == 202
    body = assert_problem(send(api, captioner="ensemble", members="stats,git"), 422, "invalid_members")
    assert "git is a pretrained captioner" in body["detail"]


def test_who_writes_is_chosen_once_and_stands_in_the_record(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    def chosen(**options: Any) -> CaptionerChoice | None:
        job = jobs.get(send(api, **options).json()["id"])
        assert job is not None
        return job.options.choice

    assert chosen() is None  # nobody is there to choose from: the worker that takes the job chooses
    fusion = CaptionerInfo(name="fusion", weights_sha256="0" * 64, features={}, members=("g2l", "stats"))
    worker.advertise("g2l", "stats", fusion)
    assert chosen() == CaptionerChoice("stats")
    assert chosen(captioner="g2l") == CaptionerChoice("g2l")
    assert chosen(captioner="fusion") == CaptionerChoice("fusion", ("g2l", "stats"))
    assert chosen(captioner="fusion", members="stats") == CaptionerChoice("fusion", ("stats",))


def test_any_captioner_is_taken_while_no_worker_lives(api: LiveApi) -> None:
    assert send(api, captioner="g2l").status_code == 202


def test_forms_without_one_video_are_refused(api: LiveApi) -> None:
    post = api.client.post
    assert_problem(post("/caption", files={"beam_size": (None, "3")}), 422, "video_missing")
    assert_problem(post("/caption", files={"video": (None, "clip.mp4")}), 422, "video_missing")
    assert_problem(send(api, b""), 422, "video_empty")
    two = [("video", ("a.mp4", b"a")), ("video", ("b.mp4", b"b"))]
    assert_problem(post("/caption", files=two), 422, "several_videos")
    assert_problem(post("/caption", content=b"a video"), 415, "not_multipart")
    assert_problem(post("/caption"), 415, "not_multipart")
    broken = {"content-type": "multipart/form-data; boundary=b"}
    assert_problem(post("/caption", content=b"--c\r\n", headers=broken), 400, "malformed_form")
    assert (api.staged, api.uploads) == ([], [])


def test_a_large_upload_is_refused_while_it_is_read(api: LiveApi) -> None:
    assert send(api, b"x" * LIMIT).status_code == 202
    assert_problem(send(api, b"x" * (LIMIT + 1)), 413, "upload_too_large")
    assert_problem(send(api, b"x" * (10 * LIMIT)), 413, "upload_too_large")
    assert (api.staged, len(api.uploads)) == ([], 1)


def test_a_large_upload_of_unknown_length_is_refused(api: LiveApi) -> None:
    def endless() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
        for _ in range(100):
            yield b"x" * 65536

    headers = {"content-type": "multipart/form-data; boundary=b"}
    response = api.client.post("/caption", content=endless(), headers=headers)
    assert_problem(response, 413, "upload_too_large")
    assert api.staged == []


def test_a_client_that_hangs_up_leaves_nothing(api: LiveApi, jobs: Jobs) -> None:
    head = (
        "POST /caption HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
        "Content-Length: 200000\r\n\r\n"
        '--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'
    )
    with socket.create_connection(("127.0.0.1", api.port)) as client:
        client.sendall(head.encode() + b"x" * 100_000)
        _until(lambda: len(api.staged) == 1)
    _until(lambda: api.staged == [])
    assert api.uploads == []
    assert jobs.server.keys(f"{jobs.keys.namespace}:job:*") == []


def _until(condition: Any, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_full_backlog_says_when_to_come_back(api: LiveApi) -> None:
    for _ in range(5):
        assert send(api).status_code == 202
    response = send(api)
    assert_problem(response, 503, "backlog_full")
    assert int(response.headers["retry-after"]) > 0
    assert (api.staged, len(api.uploads)) == ([], 5)


def test_a_full_disk_is_said_before_the_upload(settings: Settings) -> None:
    with live_api(settings.model_copy(update={"min_free_bytes": 2**60})) as api:
        assert_problem(send(api), 507, "storage_full")


def test_without_redis_everything_says_503(settings: Settings, tmp_path: Path) -> None:
    away = settings.model_copy(update={"redis_url": f"unix://{tmp_path}/nobody.sock"})
    with live_api(away) as api:
        for response in (send(api), api.client.get(f"/jobs/{'0' * 32}"), api.client.get("/models")):
            assert_problem(response, 503, "queue_unavailable")
            assert int(response.headers["retry-after"]) > 0
        assert_problem(api.client.get("/readyz"), 503, "not_ready")
        assert api.client.get("/livez").status_code == 200
        assert "reelword_redis_up 0.0" in api.client.get("/metrics").text
        assert (api.staged, api.uploads) == ([], [])


def test_a_job_that_cannot_be_kept_leaves_no_upload(api: LiveApi, server: redis.Redis) -> None:
    """Redis takes reads but no writes, as with a full disk below its append-only file."""
    server.config_set("maxmemory", 1)
    try:
        response = send(api)
    finally:
        server.config_set("maxmemory", 2**30)
    assert_problem(response, 503, "not_on_disk")
    assert (api.staged, api.uploads) == ([], [])


# ---- waiting ----


def test_a_job_that_ends_in_time_is_the_answer(api: LiveApi, worker: ScriptedWorker) -> None:
    helper = threading.Thread(target=lambda: worker.succeed(worker.take()))
    helper.start()
    response = send(api, headers=[("Prefer", "respond-async"), ("Prefer", "wait=20")])
    helper.join()
    assert response.status_code == 200
    assert response.headers["preference-applied"] == "wait=20"
    assert response.json()["state"] == "succeeded"
    assert response.headers["location"] == f"/jobs/{response.json()['id']}"


def test_a_job_that_takes_longer_is_a_promise(api: LiveApi) -> None:
    began = time.monotonic()
    response = send(api, headers={"Prefer": "wait=1"})
    assert 0.9 < time.monotonic() - began < 10
    assert response.status_code == 202
    assert response.headers["preference-applied"] == "wait=1"


@pytest.mark.parametrize(
    ("prefer", "seconds"),
    [
        (None, None),
        ("wait=10", 10),
        ('respond-async, WAIT="5"', 5),
        ("handling=lenient; wait=3", 3),
        ("wait=100000", submit.LONGEST_WAIT),
        ("wait=soon", None),
        ("wait=-1", None),
        ("await=9", None),
        ("wait", None),
    ],
)
def test_a_preference_that_cannot_be_read_is_passed_over(prefer: str | None, seconds: float | None) -> None:
    assert preferred_wait(prefer) == seconds


# ---- how the service is ----


def test_models_are_those_of_live_workers(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    assert api.client.get("/models").json()["captioners"] == []
    worker.advertise("stats", "g2l")
    ScriptedWorker(jobs, api.service.blobs, "other").advertise("stats")
    body = api.client.get("/models").json()
    assert [(one["name"], one["workers"]) for one in body["captioners"]] == [("g2l", 1), ("stats", 2)]
    assert body["default"] == "stats"
    assert set(body["options"]) == set(FORM_FIELDS)
    assert body["options"]["beam_size"]["maximum"] == 20
    assert body["options"]["members"]["type"] == body["options"]["captioner"]["type"] == "string"


def test_models_tell_what_each_captioner_is_and_costs(api: LiveApi, worker: ScriptedWorker) -> None:
    speed = SpeedInfo(feature_seconds=0.5, caption_seconds=0.1, captions_per_second=10, machine="2 cores")
    quick = CaptionerInfo(
        name="g2l", kind="g2l", weights_sha256="0" * 64, features={}, extractors=("net",), parameters=3,
        scores={"70 real clips": {"cider": 30.0}}, speed=speed, about="G2L: looks", plain="Looks over all.",
    )  # fmt: skip
    joint = CaptionerInfo(
        name="fusion", kind="fusion", weights_sha256="0" * 64, features={}, members=("g2l", "stats")
    )
    worker.advertise("stats", quick, joint)
    body = api.client.get("/models").json()
    fusion, g2l, stats = body["captioners"]
    assert body["default"] == "g2l"
    assert (fusion["members"], g2l["members"]) == (["g2l", "stats"], None)
    assert (g2l["about"], g2l["plain"], fusion["plain"]) == ("G2L: looks", "Looks over all.", "")
    assert (g2l["parameters"], g2l["extractors"], g2l["speed"]) == (3, ["net"], speed.model_dump())
    assert stats["speed"] is None


def test_ready_means_a_worker_with_models(api: LiveApi, worker: ScriptedWorker) -> None:
    assert_problem(api.client.get("/readyz"), 503, "not_ready")
    worker.advertise("stats", is_ready=False)
    assert_problem(api.client.get("/readyz"), 503, "not_ready")
    worker.advertise("stats")
    assert api.client.get("/readyz").json() == {"status": "ready", "workers": 1, "warnings": []}
    assert api.client.get("/livez").json() == {"status": "alive"}


def test_metrics_count_by_route_not_by_job(api: LiveApi, worker: ScriptedWorker) -> None:
    worker.advertise("stats")
    for _ in range(2):
        api.client.get(send(api).headers["location"])
    send(api, b"")
    text = api.client.get("/metrics").text
    assert 'reelword_requests_total{method="GET",route="/jobs/{job_id}",status="200"} 2.0' in text
    assert 'reelword_problems_total{code="video_empty"} 1.0' in text
    assert "reelword_jobs_waiting 2.0" in text
    assert 'reelword_workers{ready="true"} 1.0' in text
    assert "reelword_upload_bytes_count 2.0" in text


def test_what_the_framework_refuses_is_a_problem_too(api: LiveApi) -> None:
    assert_problem(api.client.get("/nowhere"), 404, "not_found")
    response = api.client.put("/caption")
    assert_problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


def test_a_fault_is_told_without_its_details(api: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Blobs, key: str) -> bytes:
        raise RuntimeError("secret of the house")

    location = send(api).headers["location"]
    api.service.jobs.cancel(location.rsplit("/", 1)[1])
    monkeypatch.setattr("app.api.routes.jobs.document_of", broken)
    response = api.client.get(location)
    assert_problem(response, 500, "internal_error")
    assert "secret" not in response.text


# ---- its own description ----


def test_openapi_names_every_problem(api: LiveApi) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    text = str(paths)
    unnamed = [leaf.code for leaf in refusals.RequestError.__subclasses__() if f"`{leaf.code}`" not in text]
    assert unnamed == []
    post = paths["/caption"]["post"]
    assert "application/problem+json" in post["responses"]["413"]["content"]
    form = post["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert {"video", "url", "beam_size"} < set(form["properties"])
    assert {"application/json", "application/octet-stream", "video/*", "image/*"} < set(
        post["requestBody"]["content"]
    )
    assert form["properties"]["max_length"]["maximum"] == 50


def test_openapi_refers_only_to_what_it_defines(api: LiveApi) -> None:
    document = api.client.get("/openapi.json").json()
    schemas = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert schemas <= set(document["components"]["schemas"])
    assert "Problem" in schemas
    assert "HTTPValidationError" not in schemas


def test_all_mistakes_of_a_request_are_told_at_once(api: LiveApi) -> None:
    fields = {"foo": "1", "beam_size": "99", "priority": "urgent", "captioner": "stats"}
    answers = [
        api.client.post("/caption", data=fields, files={"video": ("a.mp4", b"a video")}),
        api.client.post("/caption", json={**fields, "url": "https://example.org/a.mp4"}),
        api.client.post("/caption", params=fields, content=b"a video", headers={"Content-Type": "video/mp4"}),
    ]
    for answer in answers:
        problem = assert_problem(answer, 422, "unknown_field")
        assert [each["pointer"] for each in problem["errors"]] == ["#/foo", "#/priority", "#/beam_size"]
        assert [each["code"] for each in problem["errors"]] == [
            "unknown_field",
            "invalid_option",
            "invalid_option",
        ]
        assert "beam_size" in problem["errors"][0]["known"]
        assert all(each["detail"] for each in problem["errors"])


def test_a_request_has_a_name_and_its_answer_says_how_long_it_took(api: LiveApi) -> None:
    named = api.client.get("/livez", headers={"X-Request-Id": "trace-7.a"})
    assert named.headers["x-request-id"] == "trace-7.a"
    assert re.fullmatch(r"app;dur=\d+\.\d", named.headers["server-timing"])
    for odd in ("", "a b", "x" * 200, "a\tb"):
        made = api.client.get("/livez", headers={"X-Request-Id": odd}).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)


def test_all_is_below_v1_too_and_stays_there(api: LiveApi) -> None:
    sent = api.client.post("/v1/caption", files={"video": ("a.mp4", b"a video")})
    assert sent.status_code == 202
    assert sent.headers["location"] == f"/v1/jobs/{sent.json()['id']}"
    assert api.client.get(sent.json()["urls"]["self"]).json()["id"] == sent.json()["id"]
    assert "/v1/jobs/" in sent.json()["urls"]["events"]
    assert_problem(api.client.get("/v1/v1/models"), 404, "not_found")
    assert api.client.get("/v1/livez").status_code == 200


def test_options_tell_the_methods_of_a_path(api: LiveApi) -> None:
    answer = api.client.options(f"/jobs/{'0' * 32}")
    assert (answer.status_code, answer.headers["allow"]) == (204, "DELETE, GET, HEAD")
    assert_problem(api.client.options("/nowhere"), 404, "not_found")


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "[::1]", "localhost", "169.254.169.254"])
def test_an_address_that_is_refused_as_it_stands_makes_no_job(api: LiveApi, host: str) -> None:
    answer = api.client.post("/caption", json={"url": f"http://{host}/a.mp4"})
    assert_problem(answer, 422, "url_not_allowed")
    assert api.client.get("/jobs").json()["jobs"] == []
