"""What the API says of a job: its document, its attention, its cancelling; over a socket, on a real Redis."""

from __future__ import annotations

import io
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from PIL import Image

from app.errors import EngineCrashed
from app.jobs.job_store import Jobs
from tests.app.live_api import LiveApi, assert_problem, finished, send
from tests.app.scripted_worker import WORDS, ScriptedWorker, attention_document

MEMBERS = {
    "id", "state", "stage", "progress", "created_at", "started_at", "ended_at", "attempt", "filename",
    "media", "sampled", "warnings", "caption", "captions", "segments", "model", "timings", "error", "place",
    "estimated_seconds", "workers", "urls",
    "estimate", "metadata", "priority", "source_url", "validate_only", "webhook", "batch", "recaption_of",
}  # fmt: skip
MEDIA_MEMBERS = {
    "container", "codec", "duration", "width", "height", "rotation", "fps", "fps_average",
    "first_picture", "frames", "frames_expected", "picture",
    "frames_lost", "times_estimated", "has_audio", "audio_codec",
}  # fmt: skip


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


def test_a_waiting_job_says_where_it_stands(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    first, second = (send(api).headers["location"] for _ in range(2))
    bodies = [api.client.get(location).json() for location in (first, second)]
    assert [(body["place"], body["workers"]) for body in bodies] == [(1, 0), (2, 0)]
    assert bodies[0]["estimated_seconds"] is None  # no worker is connected
    worker.succeed(worker.take())
    body = api.client.get(first).json()
    assert (body["place"], body["estimated_seconds"], body["workers"]) == (None, None, None)


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
    assert set(body["timings"]) == {"queue", "fetch", "decode", "extract", "caption", "total"}
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
    key = f"{claim.results}/answer.json"
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


# ---- long poll ----


def test_a_state_that_is_known_is_not_sent_again(api: LiveApi, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    tag = api.client.get(location).headers["etag"]
    for tags in (tag, f'"other", {tag}', "*"):
        answer = api.client.get(location, headers={"If-None-Match": tags})
        assert (answer.status_code, answer.content, answer.headers["etag"]) == (304, b"", tag)
        assert answer.headers["retry-after"] == "1"
    lines = [
        ("If-None-Match", '"other"'),
        ("If-None-Match", tag),
        ("Prefer", "respond-async"),
        ("Prefer", "wait=1"),
    ]
    answer = api.client.get(location, headers=lines)
    assert (answer.status_code, answer.headers["preference-applied"]) == (304, "wait=1")
    claim = worker.take()
    changed = api.client.get(location, headers={"If-None-Match": tag})
    assert (changed.status_code, changed.json()["state"]) == (200, "running")
    worker.succeed(claim)
    over = api.client.get(location)
    assert "retry-after" not in over.headers
    assert api.client.get(location, headers={"If-None-Match": over.headers["etag"]}).status_code == 304


def test_a_long_poll_is_answered_when_the_job_changes(api: LiveApi, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    tag = api.client.get(location).headers["etag"]
    headers = {"If-None-Match": tag, "Prefer": "wait=20"}
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        waits = pool.submit(api.client.get, location, headers=headers)
        time.sleep(0.5)
        assert not waits.done()
        worker.take()
        answer = waits.result()
    assert 0.5 <= time.monotonic() - began < 10
    assert (answer.status_code, answer.json()["state"]) == (200, "running")
    assert answer.headers["preference-applied"] == "wait=20"
    assert api.client.get(location, headers=headers).status_code == 200  # changed already: at once


def test_a_long_poll_ends_in_time(api: LiveApi) -> None:
    location = send(api).headers["location"]
    tag = api.client.get(location).headers["etag"]
    began = time.monotonic()
    answer = api.client.get(location, headers={"If-None-Match": tag, "Prefer": "wait=1"})
    # who is first in line stays so; that its place was looked at is no change
    assert (answer.status_code, answer.headers["preference-applied"]) == (304, "wait=1")
    assert 1.0 <= time.monotonic() - began < 10
    assert (
        api.client.get(location, headers={"Prefer": "wait=30"}).status_code == 200
    )  # nothing known: at once


# ---- attention ----


def test_attention_is_what_the_worker_wrote(api: LiveApi, worker: ScriptedWorker) -> None:
    response = api.client.get(f"{finished(api, worker)}/attention")
    assert response.json() == attention_document()
    assert response.headers["content-type"] == "application/json"
    assert "immutable" in response.headers["cache-control"]


@pytest.mark.parametrize("end", ["queued", "succeeded", "failed", "canceled", "expired", "validated"])
def test_addresses_that_lead_nowhere_are_null(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker, end: str
) -> None:
    sent = send(api, validate_only="true") if end == "validated" else send(api)
    location = sent.headers["location"]
    if end == "canceled":
        api.client.delete(location)
    elif end == "failed":
        claim = worker.take()
        jobs.fail(claim, EngineCrashed("It crashed."))
        worker.blobs.remove(claim.job.upload)  # as a worker does
    elif end != "queued":
        worker.succeed(worker.take())
    if end == "expired":
        api.client.delete(location)
    if end == "validated":
        ended = jobs.get(location.rsplit("/", 1)[1])
        assert ended is not None
        worker.blobs.remove(ended.results)  # which a worker does not make
    urls = api.client.get(location).json()["urls"]
    null = {name for name, url in urls.items() if url is None}
    later = {"attention", "attention_png", "captions_vtt"}
    whole = {*later, "recaption", "video"}
    expected = {"queued": later, "succeeded": set(), "validated": later}
    assert null == expected.get(end, whole)
    for name in null - {"recaption"}:
        assert api.client.get(f"{location}/{name.replace('_', '.')}").status_code == (
            409 if end == "queued" else 404  # there may be one yet
        )
    for name in null & {"recaption"}:
        assert api.client.post(f"{location}/{name}").status_code in (404, 409)


def test_results_of_older_versions_are_still_shown(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    """They lie below the job itself, and its record names no attempt."""
    location = finished(api, worker)
    job = jobs.get(location.rsplit("/", 1)[1])
    assert job is not None
    blobs = api.service.blobs
    for name in ("attention.json", "frames/0.jpg"):
        blobs.write(f"results/{job.id}/{name}", blobs.read(f"{job.results}/{name}"))
    blobs.remove(job.results)
    assert api.client.get(f"{location}/frames/0.jpg").status_code == 404
    jobs.server.hdel(jobs.keys.job(job.id), "results")
    assert api.client.get(f"{location}/frames/0.jpg").status_code == 200
    assert api.client.get(f"{location}/attention").json()["words"] == list(WORDS)


def test_the_picture_is_drawn_once(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    response = api.client.get(f"{location}/attention.png")
    assert response.headers["content-type"] == "image/png"
    picture = Image.open(io.BytesIO(response.content))
    assert picture.width >= 900
    job = api.service.jobs.get(location.rsplit("/", 1)[1])
    assert job is not None
    kept = f"{job.results}/attention.png"
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
    canceled = send(api).headers["location"]
    api.client.delete(canceled)
    body = assert_problem(api.client.get(f"{canceled}/{name}"), 404, "no_attention")
    assert "attention=false" not in body["hint"]


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
    assert jobs.stop(claim)
    assert_problem(
        api.client.get(f"{location}/video"), 404, "video_not_kept"
    )  # though its blob is there still


@pytest.mark.parametrize("state", ["succeeded", "failed"])
def test_the_result_of_a_job_that_is_over_is_deleted(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker, state: str
) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    if state == "succeeded":
        worker.succeed(claim)
    else:
        jobs.fail(claim, EngineCrashed("The video killed the engine."))
    assert api.client.get(location).json()["state"] == state
    for _ in range(2):  # a repeated call changes nothing
        response = api.client.delete(location)
        body = response.json()
        assert (response.status_code, body["state"]) == (200, "expired")
        assert (body["caption"], body["captions"], body["media"], body["error"]) == (None,) * 4
    assert api.client.get(location).json()["state"] == "expired"
    assert_problem(api.client.get(f"{location}/attention"), 404, "no_attention")
    assert_problem(api.client.get(f"{location}/frames/0.jpg"), 404, "unknown_frame")
    results = api.service.settings.data / "blobs" / "results"
    assert (api.uploads, list(results.glob("*"))) == ([], [])
    assert jobs.due(limit=10) == []


def test_a_job_that_is_not_there_cannot_be_deleted(api: LiveApi) -> None:
    assert_problem(api.client.delete(f"/jobs/{'0' * 32}"), 404, "unknown_job")


# ---- its file's name ----


def test_a_job_has_its_files_name(api: LiveApi) -> None:
    names = {
        "holiday.mp4": "holiday.mp4",
        "/home/me/\u043a\u043e\u0442.mov": "\u043a\u043e\u0442.mov",
        "a\x1b[2Jb.mp4": "a\ufffd[2Jb.mp4",
        "": None,
    }
    for sent, shown in names.items():
        head = f'Content-Disposition: form-data; name="video"; filename="{sent}"\r\n\r\n'
        body = b"--b\r\n" + head.encode() + b"data\r\n--b--\r\n"
        response = api.client.post(
            "/caption", content=body, headers={"content-type": "multipart/form-data; boundary=b"}
        )
        assert response.status_code == 202
        assert api.client.get(response.headers["location"]).json()["filename"] == shown
