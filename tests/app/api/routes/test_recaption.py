"""A job's video is captioned again: by which options, of whose copy, and when it cannot be."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import pytest

from app.api.receiving.option_body import PLAIN_FORM
from app.api.refusals import UnknownField
from app.api.routes.recaption import FIELDS
from app.documents.job import Answer
from app.errors import EngineCrashed
from app.feature_cache.feature_cache import KeptFeatures
from app.jobs.job import Job
from app.jobs.job_store import Jobs
from app.jobs.options import FORM_FIELDS
from tests.app.live_api import LiveApi, assert_problem, finished, send
from tests.app.scripted_worker import ScriptedWorker


def recaptioned(api: LiveApi, jobs: Jobs, address: str, **how: Any) -> Job:
    """The new job."""
    response = api.client.post(f"{address}/recaption", **how)
    assert response.status_code == 202, response.text
    assert urlsplit(response.json()["urls"]["self"]).path == response.headers["location"] != address
    job = jobs.get(response.json()["id"])
    assert job is not None
    return job


def told(job: Job) -> dict[str, Any]:
    return job.options.model_dump(include=set(FORM_FIELDS), exclude_defaults=True)


def test_without_options_they_are_the_jobs_own(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    worker.advertise("g2l", "stats")
    address = finished(api, worker, captioner="g2l", beam_size=8, num_captions=3, segments="shots")
    again = recaptioned(api, jobs, address)
    assert told(again) == {"captioner": "g2l", "beam_size": 8, "num_captions": 3, "segments": "shots"}
    assert again.submission.recaption_of == address.rsplit("/", 1)[1]
    assert again.filename == "clip.mp4"
    assert again.state == "queued"


@pytest.mark.parametrize(
    "how",
    [
        {"data": {"captioner": "stats", "beam_size": "3"}},
        {"files": {"captioner": (None, "stats"), "beam_size": (None, "3")}},
        {"json": {"captioner": "stats", "beam_size": 3, "members": None}},
    ],
    ids=["form", "multipart", "json"],
)
def test_what_is_given_counts(api: LiveApi, jobs: Jobs, worker: ScriptedWorker, how: dict[str, Any]) -> None:
    worker.advertise("g2l", "stats")
    address = finished(api, worker, captioner="g2l", max_length=12)
    again = recaptioned(api, jobs, address, **how)
    assert told(again) == {"captioner": "stats", "beam_size": 3, "max_length": 12}


def test_members_go_with_their_captioner(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = finished(api, worker, captioner="ensemble", members="g2l,stats")
    assert told(recaptioned(api, jobs, address))["members"] == ("g2l", "stats")
    assert "members" not in told(recaptioned(api, jobs, address, data={"captioner": "g2l"}))


def test_metadata_and_priority_are_the_jobs_own_unless_given(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker
) -> None:
    address = finished(api, worker, metadata='{"order": 7}', priority="low")
    again = recaptioned(api, jobs, address)
    assert (again.submission.metadata, again.priority) == ({"order": 7}, "low")
    again = recaptioned(api, jobs, address, json={"metadata": {"order": 8}, "priority": "high"})
    assert (again.submission.metadata, again.priority) == ({"order": 8}, "high")


def test_an_estimated_job_is_captioned_by_it(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = finished(api, worker, validate_only="true")
    again = recaptioned(api, jobs, address)
    assert not again.submission.validate_only
    assert api.client.get(f"/jobs/{again.id}").json()["validate_only"] is False


def test_kept_features_do_without_the_file(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = finished(api, worker)
    first = jobs.get(address.rsplit("/", 1)[1])
    assert first is not None
    sha256 = str(first.submission.sha256)
    api.service.features.keep(sha256, "a", KeptFeatures(Answer(), (), b"streams"))
    api.service.blobs.remove(first.upload)
    assert recaptioned(api, jobs, address).submission.sha256 == sha256
    api.client.delete(address)
    assert not api.service.features.has(sha256)
    assert_problem(api.client.post(f"{address}/recaption"), 409, "upload_gone")


def test_each_job_has_a_copy_of_its_own(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = finished(api, worker)
    again = recaptioned(api, jobs, address)
    first = jobs.get(address.rsplit("/", 1)[1])
    assert first is not None
    assert again.submission.sha256 == first.submission.sha256
    folder = api.service.settings.data / "blobs"
    assert (folder / first.upload).samefile(folder / again.upload)  # the bytes lie on the disk once
    api.client.delete(address)
    assert api.service.blobs.read(again.upload) == b"a video"
    worker.succeed(worker.take())
    assert recaptioned(api, jobs, f"/jobs/{again.id}").submission.recaption_of == again.id


def test_a_job_that_runs_can_be_captioned_beside(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    address = send(api).headers["location"]
    worker.take()
    assert recaptioned(api, jobs, address).state == "queued"


def test_a_wait_holds_the_request(api: LiveApi, worker: ScriptedWorker) -> None:
    address = finished(api, worker)
    response = api.client.post(f"{address}/recaption", headers={"Prefer": "wait=0"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=0")


def test_a_repeated_request_makes_one_job(api: LiveApi, worker: ScriptedWorker) -> None:
    address, headers = finished(api, worker), {"Idempotency-Key": "once"}
    first, again = (
        api.client.post(f"{address}/recaption", headers=headers, data={"beam_size": 2}) for _ in range(2)
    )
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.headers["location"] == again.headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    other = api.client.post(f"{address}/recaption", headers=headers, data={"beam_size": 3})
    assert_problem(other, 422, "idempotency_mismatch")


@pytest.mark.parametrize("end", ["failed", "canceled", "expired", "not kept"])
def test_what_is_not_kept_cannot_be_captioned_again(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker, end: str
) -> None:
    address = send(api).headers["location"]
    if end == "canceled":
        api.client.delete(address)
    else:
        claim = worker.take()
        if end == "failed":
            jobs.fail(claim, EngineCrashed("It crashed."))
            worker.blobs.remove(claim.job.upload)  # as a worker does
        else:
            worker.succeed(claim)
        if end == "expired":
            api.client.delete(address)
        if end == "not kept":
            worker.blobs.remove(claim.job.upload)
    before = jobs.server.xlen(jobs.keys.stream("normal"))
    assert_problem(api.client.post(f"{address}/recaption"), 409, "upload_gone")
    assert api.service.blobs.names("uploads") == set()
    assert jobs.server.xlen(jobs.keys.stream("normal")) == before


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"data": {"beams": "3"}}, 422, "unknown_field"),
    ({"json": {"beams": 3}}, 422, "unknown_field"),
    ({"files": {"video": ("a.mp4", b"x")}}, 422, "unknown_field"),
    ({"data": {"beam_size": "21"}}, 422, "invalid_option"),
    ({"data": {"num_captions": "9"}}, 422, "invalid_option"),
    ({"data": {"captioner": "nobody"}}, 422, "unknown_captioner"),
    ({"data": {"beam_size": ["3", "4"]}}, 422, "invalid_option"),
    ({"data": {"url": "https://example.org/a.mp4"}}, 422, "unknown_field"),
    ({"json": {"beam_size": "3"}}, 422, "invalid_option"),
    ({"json": {"metadata": 3}}, 422, "invalid_option"),
    ({"json": [1]}, 400, "malformed_json"),
    ({"content": b"{", "headers": {"content-type": "application/json"}}, 400, "malformed_json"),
    ({"content": b"x", "headers": {"content-type": "text/plain"}}, 415, "not_multipart"),
    ({"content": b"x" * 70_000, "headers": {"content-type": "application/json"}}, 400, "malformed_json"),
    ({"content": b"a=" * 40_000, "headers": {"content-type": PLAIN_FORM}}, 400, "malformed_form"),
    ({"params": {"beam_size": "3"}}, 422, "option_in_query"),
]


@pytest.mark.parametrize(
    ("how", "status", "code"), WRONG, ids=[f"{code} {n}" for n, (*_, code) in enumerate(WRONG)]
)
def test_what_is_wrong_is_named_and_leaves_nothing(
    api: LiveApi, worker: ScriptedWorker, how: dict[str, Any], status: int, code: str
) -> None:
    worker.advertise("g2l", "stats")
    address = finished(api, worker)
    problem = assert_problem(api.client.post(f"{address}/recaption", **how), status, code)
    if code == UnknownField.code:
        assert problem["known"] == list(FIELDS)
    assert len(api.uploads) == 1


def test_an_unknown_job_cannot_be_captioned_again(api: LiveApi) -> None:
    assert_problem(api.client.post(f"/jobs/{'0' * 32}/recaption"), 404, "unknown_job")


def test_a_full_backlog_takes_no_more(api: LiveApi, worker: ScriptedWorker) -> None:
    address = finished(api, worker)
    for _ in range(5):
        assert api.client.post(f"{address}/recaption").status_code == 202
    assert_problem(api.client.post(f"{address}/recaption"), 503, "backlog_full")
