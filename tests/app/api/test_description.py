"""The API against its own description: schemathesis sends what that allows and forbids."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.jobs.job_store import Jobs
from app.settings import Settings
from tests.app.live_api import LiveApi, finished, live_api
from tests.app.scripted_worker import ScriptedWorker, working

SECONDS = 300
#: A job that was deleted is still told about, as canceled or expired.
EXCLUDED = "positive_data_acceptance,use_after_free"


@pytest.fixture
def open_api(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"max_backlog": 100_000})) as running:
        yield running


def schemathesis_finds(api: LiveApi, folder: Path, *arguments: str) -> str:
    """Runs it against a live API; returns its report, empty where it found nothing."""
    # Fields that are valid each may be refused together (more captions than the beam holds, members of a
    # captioner that has none, a captioner that no worker has): no schema says so.
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"http://127.0.0.1:{api.port}/openapi.json"),
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
