"""The API against its own description: a client that is generated of it, and what it allows and forbids."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis

from app.documents.deliveries import EVENTS
from app.jobs.job_store import Jobs
from app.settings import Settings
from tests.app.live_api import LiveApi, finished, live_api
from tests.app.scripted_worker import ScriptedWorker, working

SECONDS = 300
#: A job that was deleted is still told about, as canceled or expired.
EXCLUDED = "positive_data_acceptance,use_after_free"


#: A program of somebody who has nothing but the generated package.
PROGRAM = """
import json, sys
from sdk import Client
from sdk.api.caption import caption_video
from sdk.api.jobs import get_attention, get_job
from sdk.models import CaptionVideoFilesBody
from sdk.types import File

client = Client(base_url=sys.argv[1], timeout=30)
body = CaptionVideoFilesBody(video=File(open("clip.mp4", "rb"), "clip.mp4"), beam_size=8)
job = caption_video.sync(client=client, body=body, prefer="wait=30")
words = get_attention.sync(job.id, client=client).words
job = get_job.sync(job.id, client=client)
print(json.dumps([job.state, job.caption, job.filename, job.model.options["beam_size"], words]))
"""


@pytest.fixture
def open_api(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"max_backlog": 100_000})) as running:
        yield running


def description_for_schemathesis(api: LiveApi) -> Any:
    """What the API says of itself, without /files, whose headers schemathesis does not understand as tus' own
    client does, and with what generated clients do not: that one field alone brings the video.
    """
    document = api.client.get("/openapi.json").json()
    document["paths"] = {path: item for path, item in document["paths"].items() if "/files" not in path}
    form = document["paths"]["/caption"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    form["oneOf"] = [{"required": [name]} for name in ("video", "url", "file")]
    return document


def schemathesis_finds(api: LiveApi, folder: Path, *arguments: str) -> str:
    """Runs it against a live API; returns its report, empty where it found nothing."""
    # Fields that are valid each may be refused together (more captions than the beam holds, members of a
    # captioner that has none, a captioner that no worker has): no schema says so.
    (folder / "openapi.json").write_text(json.dumps(description_for_schemathesis(api)))
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", f"{api.client.base_url}"),
        *("--checks", "all", "--exclude-checks", EXCLUDED, "--mode", "all", "--seed", "1"),
        *("--max-examples", "25", "--no-color", "--continue-on-failure", "--no-shrink"),
        *("--request-timeout", "20", "--max-redirects", "0"),
    ]
    run = subprocess.run([*command, *arguments], cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    return "" if run.returncode == 0 else (run.stdout + run.stderr)[-20_000:]


def test_nothing_is_found_that_the_description_does_not_tell(
    open_api: LiveApi, jobs: Jobs, tmp_path: Path
) -> None:
    worker = ScriptedWorker(jobs, open_api.service.blobs)
    worker.advertise("stats", "g2l")
    with working(worker, "stats", "g2l"):
        findings = schemathesis_finds(open_api, tmp_path)
    assert not findings, findings


def test_nothing_is_found_about_a_job_that_has_everything(
    open_api: LiveApi, jobs: Jobs, tmp_path: Path
) -> None:
    worker = ScriptedWorker(jobs, open_api.service.blobs)
    worker.advertise("stats")
    job_id = finished(open_api, worker).rpartition("/")[2]
    (tmp_path / "schemathesis.toml").write_text(f'[parameters]\njob_id = "{job_id}"\nnumber = 1\n')
    with working(worker, "stats", "g2l"):
        findings = schemathesis_finds(
            open_api, tmp_path, "--include-path-regex", "^/jobs/", "--exclude-method", "DELETE"
        )
    assert not findings, findings


def test_a_client_that_is_generated_of_it_captions(api: LiveApi, jobs: Jobs, tmp_path: Path) -> None:
    (tmp_path / "openapi.json").write_bytes(api.client.get("/openapi.json").content)
    (tmp_path / "clip.mp4").write_bytes(b"a video")
    make = ("openapi_python_client", "generate", "--path", "openapi.json", "--meta", "none")
    _run(tmp_path, "-m", *make, "--output-path", "sdk")
    worker = ScriptedWorker(jobs, api.service.blobs)
    worker.advertise("stats")
    with working(worker, "stats"):
        (tmp_path / "program.py").write_text(PROGRAM)
        said = json.loads(_run(tmp_path, "program.py", str(api.client.base_url)))
    assert said == ["succeeded", "a dog runs", "clip.mp4", 5, ["a", "dog", "runs"]]


def _run(folder: Path, *arguments: str) -> str:
    environment = os.environ | {"PYTHONWARNINGS": ""}
    run = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def test_it_is_valid_and_tells_of_webhooks_and_where_it_is(api: LiveApi) -> None:
    document = api.client.get("/v1/openapi.json").json()
    schemathesis.openapi.from_dict(document).validate()
    assert document["openapi"].startswith("3.1.")
    assert document["servers"][0]["url"] == "/v1"
    assert set(document["webhooks"]) == set(EVENTS)
    operations = [
        operation
        for name in ("paths", "webhooks")
        for item in document[name].values()
        for operation in item.values()
    ]
    names = [operation["operationId"] for operation in operations]
    assert len(names) == len(set(names))
    tags = {tag["name"] for tag in document["tags"]}
    for operation in operations:
        assert 10 < len(operation["summary"]) < 110, operation["summary"]
        assert set(operation["tags"]) <= tags
