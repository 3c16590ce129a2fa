"""A body that is a video, and one that is JSON, over a socket; forms are in test_upload.py."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from app.jobs.job import Job
from app.jobs.job_store import Jobs
from app.settings import Settings
from tests.app.live_api import LIMIT, LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.webhooks.receiver import SECRET

URL = "https://example.org/films/a%20clip.mp4?signed=1"


def post(api: LiveApi, content: bytes = b"a video", kind: str = "video/mp4", **query: str) -> httpx.Response:
    return api.client.post("/caption", content=content, headers={"content-type": kind}, params=query)


def job_of(jobs: Jobs, response: httpx.Response) -> Job:
    assert response.status_code == 202, response.text
    job = jobs.get(response.json()["id"])
    assert job is not None
    return job


@pytest.mark.parametrize(
    "kind", ["video/mp4", "image/gif", "application/octet-stream", "Video/MP4; codecs=x"]
)
def test_a_body_that_is_a_video_becomes_a_job(api: LiveApi, jobs: Jobs, kind: str) -> None:
    job = job_of(
        jobs, post(api, b"the bytes", kind, beam_size="3", filename="a/clip.mp4", metadata='{"a": 1}')
    )
    assert (job.options.beam_size, job.filename, job.submission.metadata) == (3, "clip.mp4", {"a": 1})
    assert api.service.blobs.read(job.upload) == b"the bytes"
    assert api.staged == []


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ('filename="my clip.mp4"', "my clip.mp4"),
        ("filename*=UTF-8''caf%C3%A9%20%E2%98%83.mp4", "café ☃.mp4"),
        ("filename*=utf-8'en'caf%C3%A9.mp4; filename=cafe.mp4", "café.mp4"),
        ("filename=cafe.mp4; filename*=iso-8859-1''caf%E9.mp4", "café.mp4"),
    ],
)
def test_the_file_s_name_may_stand_in_a_header(api: LiveApi, jobs: Jobs, name: str, shown: str) -> None:
    headers = {"content-type": "video/mp4", "content-disposition": f"attachment; {name}"}
    response = api.client.post("/caption", content=b"a video", headers=headers)
    assert job_of(jobs, response).filename == shown


@pytest.mark.parametrize("route", ["/caption", "/batches"])
def test_a_field_of_another_name_is_refused_by_it_whatever_its_size(api: LiveApi, route: str) -> None:
    video = api.client.post(route, files={"clip": ("clip.mp4", b"x" * 5000)})
    problem = assert_problem(video, 422, "unknown_field")
    assert problem["detail"] == "There is no field called clip; the video goes into video."
    assert problem["hint"].startswith("The fields are: video, ")
    text = api.client.post(route, files={"note": (None, b"x" * 5000), "video": ("a.mp4", b"x")})
    assert assert_problem(text, 422, "unknown_field")["detail"] == "There is no field called note."
    assert (api.staged, api.uploads) == ([], [])


def test_a_video_in_the_field_of_an_id_is_told_where_it_goes(api: LiveApi) -> None:
    video = api.client.post("/caption", files={"file": ("clip.mp4", b"x" * 5000)})
    problem = assert_problem(video, 422, "invalid_option")
    assert problem["detail"].endswith("the video goes into video.")
    assert (api.staged, api.uploads) == ([], [])


def test_wrong_bodies_that_are_videos_leave_nothing(api: LiveApi) -> None:
    assert_problem(post(api, b""), 422, "video_empty")
    assert_problem(post(api, b"x" * (LIMIT + 1)), 413, "upload_too_large")
    assert_problem(post(api, beams="3"), 422, "unknown_field")
    video, kind = b"a video", {"content-type": "video/mp4"}
    nameless = api.client.post("/caption", content=video, headers=kind, params={"": "x"})
    assert_problem(nameless, 422, "unknown_field")
    assert_problem(api.client.post("/caption", json={"url": URL, "": "x"}), 422, "unknown_field")
    assert_problem(post(api, beam_size="many"), 422, "invalid_option")
    assert_problem(post(api, url=URL), 422, "several_videos")
    twice = api.client.post(
        "/caption?beam_size=1&beam_size=2", content=b"a", headers={"content-type": "video/mp4"}
    )
    assert_problem(twice, 422, "invalid_option")
    assert_problem(post(api, kind="application/x-www-form-urlencoded"), 415, "not_multipart")
    assert (api.staged, api.uploads) == ([], [])


@pytest.mark.parametrize("coding", [("Content-Encoding", "gzip"), ("Content-Encoding", "identity, br")])
@pytest.mark.parametrize("route", ["/caption", "/batches"])
def test_a_body_that_is_compressed_is_refused(api: LiveApi, route: str, coding: tuple[str, str]) -> None:
    headers = {"Content-Type": "video/mp4", **dict([coding])}
    assert_problem(api.client.post(route, content=b"data", headers=headers), 415, "not_multipart")
    headers["Content-Encoding"] = "identity"
    assert api.client.post("/caption", content=b"data", headers=headers).status_code == 202


def test_a_large_body_of_unknown_length_is_refused(api: LiveApi) -> None:
    def endless() -> Any:
        for _ in range(100):
            yield b"x" * 65536

    headers = {"content-type": "application/octet-stream"}
    assert_problem(api.client.post("/caption", content=endless(), headers=headers), 413, "upload_too_large")
    assert api.staged == []


def test_json_with_a_url_becomes_a_job(api: LiveApi, jobs: Jobs) -> None:
    body = {"url": URL, "beam_size": 8, "metadata": {"order": [7, None]}, "priority": "low"}
    response = api.client.post("/caption", json=body)
    job = job_of(jobs, response)
    assert job.submission.source_url == URL
    assert (job.filename, job.priority, job.options.beam_size) == ("a clip.mp4", "low", 8)
    document = api.client.get(response.headers["location"]).json()
    assert (document["source_url"], document["metadata"]) == (URL, {"order": [7, None]})
    assert (document["priority"], document["filename"]) == ("low", "a clip.mp4")
    assert (api.staged, api.uploads) == ([], [])


def test_a_form_may_have_a_url_in_place_of_a_file(api: LiveApi, jobs: Jobs) -> None:
    response = api.client.post("/caption", files={"url": (None, URL), "max_length": (None, "7")})
    job = job_of(jobs, response)
    assert (job.submission.source_url, job.options.max_length) == (URL, 7)
    assert (api.staged, api.uploads) == ([], [])


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'"a"', b"\xff", b'{"url": "\\ud800"}', b'{"a": 1e400}', b"[" * 1000, b" " * 70_000],
)
def test_a_body_that_is_no_json_object_is_refused(api: LiveApi, content: bytes) -> None:
    assert_problem(post(api, content, "application/json"), 400, "malformed_json")


def test_json_without_a_url_has_no_video(api: LiveApi) -> None:
    assert_problem(api.client.post("/caption", json={"beam_size": 8}), 422, "video_missing")
    assert_problem(api.client.post("/caption", json={"url": URL, "beams": 8}), 422, "unknown_field")
    assert_problem(api.client.post("/caption?a=1", json={"url": URL}), 422, "option_in_query")


def test_urls_are_refused_where_the_operator_has_switched_them_off(settings: Settings) -> None:
    with live_api(settings.model_copy(update={"urls": "off"})) as api:
        assert_problem(api.client.post("/caption", json={"url": URL}), 422, "url_not_supported")
        assert send(api).status_code == 202


def test_what_is_told_beside_the_options_comes_back(settings: Settings, jobs: Jobs) -> None:
    signed = settings.model_copy(update={"webhook_secrets": (SECRET,)})
    with live_api(signed) as api:
        response = send(
            api, metadata='{"order": "ü"}', priority="high", webhook="https://u.example:8/hook?key=1"
        )
        job = job_of(jobs, response)
        assert job.submission.webhook == "https://u.example:8/hook?key=1"
        assert job.submission.sha256 == "3dbe53a2de431feaea25139a6ea5eb705629d3fb419181298046d78d55acb055"
        document = api.client.get(response.headers["location"]).json()
        assert (document["metadata"], document["priority"]) == ({"order": "ü"}, "high")
        assert document["webhook"] == "u.example"
        assert not document["validate_only"]


def test_a_more_urgent_job_is_taken_first(api: LiveApi, worker: ScriptedWorker) -> None:
    ids = [send(api, priority=priority).json()["id"] for priority in ("low", "normal", "high")]
    assert [worker.take().job.id for _ in ids] == ids[::-1]


def test_a_prompt_needs_a_captioner_that_takes_one(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    from app.jobs.captioner_info import CaptionerInfo

    prompted = CaptionerInfo(name="vlm", weights_sha256="0" * 64, features={}, takes_prompt=True)
    worker.advertise("stats", prompted)
    body = assert_problem(send(api, prompt="Who is it?"), 422, "prompt_not_taken")
    assert body["known"] == ["vlm"]
    assert job_of(jobs, send(api, captioner="vlm", prompt="Who is it?")).options.prompt == "Who is it?"
    takes_prompt = {
        one["name"]: one["takes_prompt"] for one in api.client.get("/models").json()["captioners"]
    }
    assert takes_prompt == {"stats": False, "vlm": True}


def test_an_option_needs_a_captioner_that_has_it(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    from app.jobs.captioner_info import CaptionerInfo

    classed = CaptionerInfo(name="classed", weights_sha256="0" * 64, features={}, classes=20)
    worker.advertise("stats", classed)
    body = assert_problem(send(api, category=3), 422, "option_not_taken")
    assert "those that do: classed" in body["detail"]
    assert_problem(send(api, captioner="classed", category=20), 422, "option_not_taken")
    job = job_of(jobs, send(api, captioner="classed", category=3, method="sample", top_k=4, name_once="no"))
    assert job.options.model_dump(exclude_defaults=True) == {
        "captioner": "classed",
        "category": 3,
        "method": "sample",
        "top_k": 4,
        "name_once": False,
    }
    classes = {one["name"]: one["classes"] for one in api.client.get("/models").json()["captioners"]}
    assert classes == {"stats": 0, "classed": 20}


def test_records_say_which_version_of_the_program_they_need(api: LiveApi, jobs: Jobs) -> None:
    """A worker of the version before runs what it can, and leaves alone what it would do wrongly."""

    def version(response: httpx.Response) -> Any:
        return jobs.server.hget(jobs.keys.job(response.json()["id"]), "version")

    assert version(send(api, metadata="{}", priority="high")) == "1"
    assert version(send(api, validate_only="true")) == "2"
    assert version(api.client.post("/caption", json={"url": URL})) == "2"
