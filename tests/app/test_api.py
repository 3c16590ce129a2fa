"""The HTTP contract over a socket: a real server, a real Redis, a worker that does what the test says."""

from __future__ import annotations

import io
import re
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from PIL import Image

from app import api_submit, problems
from app.api_submit import preferred_wait
from app.blobs import Blobs
from app.errors import EngineCrashed
from app.jobs import Jobs, Keys
from app.redis_server import RedisServer
from app.settings import Settings
from app.upload import FORM_NAMES
from tests.app.live_api import LiveApi, live_api
from tests.app.scripted_worker import ScriptedWorker, attention_document

LIMIT = 300_000
MEMBERS = {
    "id", "state", "stage", "progress", "created_at", "started_at", "ended_at", "attempt", "media", "sampled",
    "warnings", "caption", "captions", "model", "timings", "error",
}  # fmt: skip
MEDIA_MEMBERS = {
    "container", "codec", "duration", "width", "height", "rotation", "fps", "frames", "frames_expected",
    "frames_lost", "times_estimated", "has_audio", "audio_codec",
}  # fmt: skip


@pytest.fixture
def settings(tmp_path: Path, redis_server: RedisServer, keys: Keys) -> Settings:
    return Settings(
        data=tmp_path,
        redis_url=redis_server.url,
        namespace=keys.namespace,
        max_upload_bytes=LIMIT,
        max_backlog=5,
        min_free_bytes=0,
    )


@pytest.fixture
def api(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings) as running:
        yield running


@pytest.fixture
def worker(api: LiveApi, jobs: Jobs) -> ScriptedWorker:
    return ScriptedWorker(jobs, api.service.blobs)


def send(
    api: LiveApi, data: bytes = b"a video", headers: dict[str, str] | None = None, **options: Any
) -> Any:
    fields = {name: str(value) for name, value in options.items()}
    return api.client.post("/caption", files={"video": ("clip.mp4", data)}, data=fields, headers=headers)


def finished(api: LiveApi, worker: ScriptedWorker, **options: Any) -> str:
    """The address of a job that has succeeded."""
    location: str = send(api, **options).headers["location"]
    worker.succeed(worker.take())
    return location


def assert_problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = response.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["type"] == f"urn:reelword:problem:{code}"
    assert body["instance"] == response.request.url.path
    for sentence in (body["title"], body["detail"], body["hint"]):
        assert sentence
    return body


# ---- sending ----


def test_an_upload_becomes_a_job(api: LiveApi, jobs: Jobs) -> None:
    response = send(api, b"the bytes", beam_size=3, num_captions=2, max_length=12, attention="false")
    assert response.status_code == 202
    body = response.json()
    path = f"/jobs/{body['id']}"
    assert body["state"] == "queued"
    assert body["urls"] == {
        "self": path,
        "attention": f"{path}/attention",
        "attention_png": f"{path}/attention.png",
        "cancel": path,
    }
    assert response.headers["location"] == path
    assert int(response.headers["retry-after"]) >= 1
    job = jobs.get(body["id"])
    assert job is not None
    assert job.options.model_dump(exclude={"captioner", "length_penalty"}) == {
        "beam_size": 3, "num_captions": 2, "max_length": 12, "attention": False,
    }  # fmt: skip
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
    ({"url": "http://example.org/a.mp4"}, "url_not_supported", None),
]


def test_wrong_options_are_refused_with_the_known_ones(api: LiveApi, worker: ScriptedWorker) -> None:
    worker.advertise("stats", "g2l")
    for options, code, known in WRONG_OPTIONS:
        body = assert_problem(send(api, **options), 422, code)
        assert body.get("known") == known
        assert next(iter(options)) in body["detail"]
    assert (api.staged, api.uploads) == ([], [])


def test_any_captioner_is_taken_while_no_worker_lives(api: LiveApi) -> None:
    assert send(api, captioner="g2l").status_code == 202


def test_forms_without_one_video_are_refused(api: LiveApi) -> None:
    post = api.client.post
    assert_problem(post("/caption", files={"beam_size": (None, "3")}), 422, "video_missing")
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
        "POST /caption HTTP/1.1\r\nHost: here\r\nContent-Type: multipart/form-data; boundary=b\r\n"
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
        server.config_set("maxmemory", 0)
    assert_problem(response, 503, "not_on_disk")
    assert (api.staged, api.uploads) == ([], [])


# ---- waiting ----


def test_a_job_that_ends_in_time_is_the_answer(api: LiveApi, worker: ScriptedWorker) -> None:
    helper = threading.Thread(target=lambda: worker.succeed(worker.take()))
    helper.start()
    response = send(api, headers={"Prefer": "respond-async, wait=20"})
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
        ("wait=100000", api_submit.LONGEST_WAIT),
        ("wait=soon", None),
        ("wait=-1", None),
        ("await=9", None),
        ("wait", None),
    ],
)
def test_a_preference_that_cannot_be_read_is_passed_over(prefer: str | None, seconds: float | None) -> None:
    assert preferred_wait(prefer) == seconds


# ---- following ----


def test_a_waiting_job_has_every_member(api: LiveApi) -> None:
    response = api.client.get(send(api).headers["location"])
    body = response.json()
    assert set(body) == MEMBERS
    assert (body["state"], body["attempt"], body["progress"], body["warnings"]) == ("queued", 0, 0.0, [])
    for name in (
        "stage",
        "started_at",
        "ended_at",
        "media",
        "sampled",
        "caption",
        "captions",
        "model",
        "error",
    ):
        assert body[name] is None
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", body["created_at"])
    assert response.headers["retry-after"] == "1"
    assert response.headers["cache-control"] == "no-store"


def test_a_running_job_says_how_far_it_is(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    media = {"container": "mp4", "duration": 2.0}
    jobs.beat(claim, "extract", 0.5, {"media": media, "sampled": [0.5, 1.5]})
    body = api.client.get(location).json()
    assert (body["state"], body["stage"], body["progress"], body["attempt"]) == ("running", "extract", 0.5, 1)
    assert set(body["media"]) == MEDIA_MEMBERS
    assert (body["media"]["duration"], body["media"]["codec"]) == (2.0, None)
    assert body["sampled"] == [0.5, 1.5]


def test_a_finished_job_has_its_answer(api: LiveApi, worker: ScriptedWorker) -> None:
    body = api.client.get(finished(api, worker)).json()
    assert set(body) == MEMBERS
    assert (body["state"], body["progress"], body["stage"]) == ("succeeded", 1.0, None)
    assert body["caption"] == body["captions"][0]["text"] == "a dog runs"
    assert body["captions"][0]["words"][1] == {"word": "dog", "logprob": -0.1}
    assert body["sampled"] == [0.5, 1.5, 2.5, 3.5]
    assert body["warnings"] == [{"code": "no_audio", "message": "The file has no sound."}]
    assert set(body["timings"]) == {"queue", "decode", "extract", "caption", "total"}
    assert body["timings"]["total"] >= body["timings"]["queue"] >= 0
    assert body["model"]["captioner"] == "stats"


def test_a_failed_job_says_why(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    jobs.fail(worker.take(), EngineCrashed("The video killed the engine three times."))
    body = api.client.get(location).json()
    assert body["state"] == "failed"
    assert body["error"]["code"] == "engine_crashed"
    assert body["error"]["message"] == "The video killed the engine three times."
    assert body["error"]["hint"]
    assert_problem(api.client.get(f"{location}/attention"), 404, "no_attention")


def test_an_answer_too_large_for_redis_is_read_from_its_blob(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker
) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    key = f"results/{claim.job.id}/answer.json"
    api.service.blobs.write(key, b'{"caption": "from the blob", "sampled": [0.5]}')
    jobs.succeed(claim, {"blob": key, "media": {"container": "mp4"}})
    assert api.client.get(location).json()["caption"] == "from the blob"
    api.service.blobs.remove(key)
    body = api.client.get(location).json()
    assert (body["caption"], body["media"]["container"]) == (None, "mp4")


def test_unknown_jobs_are_not_found(api: LiveApi) -> None:
    for rest in ("", "/attention", "/attention.png", "/frames/0.jpg"):
        for job_id in ("0" * 32, "short", "é", "0" * 400):
            assert_problem(api.client.get(f"/jobs/{job_id}{rest}"), 404, "unknown_job")
        assert api.client.get(f"/jobs/..%2F..%2Fetc{rest}").status_code == 404


# ---- attention ----


def test_attention_is_what_the_worker_wrote(api: LiveApi, worker: ScriptedWorker) -> None:
    response = api.client.get(f"{finished(api, worker)}/attention")
    assert response.json() == attention_document()
    assert response.headers["content-type"] == "application/json"
    assert "immutable" in response.headers["cache-control"]


def test_the_picture_is_drawn_once(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    response = api.client.get(f"{location}/attention.png")
    assert response.headers["content-type"] == "image/png"
    picture = Image.open(io.BytesIO(response.content))
    assert picture.width >= 900
    kept = f"results/{location.rsplit('/', 1)[1]}/attention.png"
    assert api.service.blobs.read(kept) == response.content
    api.service.blobs.write(kept, b"kept")
    assert api.client.get(f"{location}/attention.png").content == b"kept"


def test_frames_are_those_that_were_seen(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    response = api.client.get(f"{location}/frames/2.jpg")
    assert response.headers["content-type"] == "image/jpeg"
    pixel = Image.open(io.BytesIO(response.content)).getpixel((10, 10))
    assert pixel == pytest.approx((140, 140, 140), abs=3)
    assert_problem(api.client.get(f"{location}/frames/4.jpg"), 404, "unknown_frame")
    assert_problem(api.client.get(f"{location}/frames/x.jpg"), 422, "invalid_request")


@pytest.mark.parametrize("name", ["attention", "attention.png"])
def test_attention_comes_with_the_caption_and_only_where_asked_for(
    api: LiveApi, worker: ScriptedWorker, name: str
) -> None:
    location = send(api).headers["location"]
    assert_problem(api.client.get(f"{location}/{name}"), 409, "job_not_finished")
    claim = worker.take()
    assert_problem(api.client.get(f"{location}/{name}"), 409, "job_not_finished")
    worker.succeed(claim)
    without = finished(api, worker, attention="false")
    body = assert_problem(api.client.get(f"{without}/{name}"), 404, "no_attention")
    assert "attention=false" in body["detail"]


# ---- cancelling ----


def test_a_waiting_job_is_cancelled_at_once_with_its_upload(api: LiveApi) -> None:
    location = send(api).headers["location"]
    response = api.client.delete(location)
    assert (response.status_code, response.json()["state"]) == (200, "canceled")
    assert api.uploads == []
    again = api.client.delete(location)
    assert (again.status_code, again.json()["state"]) == (200, "canceled")


def test_a_running_job_is_told_to_stop(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    response = api.client.delete(location)
    assert (response.status_code, response.json()["state"]) == (202, "running")
    assert jobs.beat(claim, "decode", 0.1) == "canceled"


def test_a_finished_job_cannot_be_cancelled(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    body = assert_problem(api.client.delete(location), 409, "job_is_over")
    assert body["detail"] == "The job has succeeded."
    assert api.client.get(location).json()["state"] == "succeeded"
    assert_problem(api.client.delete(f"/jobs/{'0' * 32}"), 404, "unknown_job")


# ---- how the service is ----


def test_models_are_those_of_live_workers(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    assert api.client.get("/models").json()["captioners"] == []
    worker.advertise("stats", "g2l")
    ScriptedWorker(jobs, api.service.blobs, "other").advertise("stats")
    body = api.client.get("/models").json()
    assert [(one["name"], one["workers"]) for one in body["captioners"]] == [("g2l", 1), ("stats", 2)]
    assert body["default"] == "stats"
    assert set(body["options"]) == {"captioner", "beam_size", "num_captions", "max_length", "attention"}
    assert body["options"]["beam_size"]["maximum"] == 20


def test_ready_means_a_worker_with_models(api: LiveApi, worker: ScriptedWorker) -> None:
    assert_problem(api.client.get("/readyz"), 503, "not_ready")
    worker.advertise("stats", is_ready=False)
    assert_problem(api.client.get("/readyz"), 503, "not_ready")
    worker.advertise("stats")
    assert api.client.get("/readyz").json() == {"status": "ready", "workers": 1}
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
    monkeypatch.setattr("app.api_jobs.document_of", broken)
    response = api.client.get(location)
    assert_problem(response, 500, "internal_error")
    assert "secret" not in response.text


# ---- its own description ----


def test_openapi_names_every_problem(api: LiveApi) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    text = str(paths)
    unnamed = [leaf.code for leaf in problems.RequestError.__subclasses__() if f"`{leaf.code}`" not in text]
    assert unnamed == []
    post = paths["/caption"]["post"]
    assert "application/problem+json" in post["responses"]["413"]["content"]
    form = post["requestBody"]["content"]["multipart/form-data"]["schema"]
    assert form["required"] == ["video"]
    assert form["properties"]["max_length"]["maximum"] == 50


def test_openapi_refers_only_to_what_it_defines(api: LiveApi) -> None:
    document = api.client.get("/openapi.json").json()
    wanted = set(re.findall(r"#/components/schemas/(\w+)", str(document)))
    assert wanted <= set(document["components"]["schemas"])
    assert "Problem" in wanted
    assert "HTTPValidationError" not in wanted
