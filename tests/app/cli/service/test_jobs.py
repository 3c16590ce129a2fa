"""``reelword jobs``, on a real Redis with jobs in every state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.errors import EngineCrashed
from app.jobs.blobs import BLOCK
from app.jobs.job import Job, Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.settings import Settings
from app.terminal import PROGRAM
from tests.app.live_api import LiveApi, finished, send
from tests.app.scripted_worker import ScriptedWorker

Run = Callable[..., Result]


@pytest.fixture
def run(settings: Settings) -> Run:
    environment = {
        "REELWORD_DATA": str(settings.data),
        "REDIS_URL": str(settings.redis_url),
        "REELWORD_NAMESPACE": settings.namespace,
        "COLUMNS": "80",
    }

    def invoke(*arguments: str, **more: str) -> Result:
        given = ["jobs", *arguments]
        return CliRunner().invoke(cli, given, env={**environment, **more}, prog_name=PROGRAM)

    return invoke


def waiting(api: LiveApi) -> str:
    return str(send(api).json()["id"])


def succeeded(api: LiveApi, worker: ScriptedWorker) -> str:
    return finished(api, worker).rpartition("/")[2]


def failed(api: LiveApi, worker: ScriptedWorker) -> str:
    job_id = waiting(api)
    assert worker.jobs.fail(worker.take(), EngineCrashed("It crashed."))
    return job_id


def job_of(jobs: Jobs, job_id: str) -> Job:
    found = jobs.get(job_id)
    assert found is not None
    return found


def listed(result: Result) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_jobs_are_listed_newest_first_and_by_state(run: Run, api: LiveApi, worker: ScriptedWorker) -> None:
    done, broken, left = succeeded(api, worker), failed(api, worker), waiting(api)
    every = listed(run("list", "--json"))
    assert [(job["id"], job["state"]) for job in every] == [
        (left, "queued"),
        (broken, "failed"),
        (done, "succeeded"),
    ]
    assert every[1]["error"]["code"] == "engine_crashed"
    assert every[1]["worker"] == worker.name
    assert every[2]["caption"] == "a dog runs"
    assert [job["id"] for job in listed(run("list", "--json", "--state", "failed,queued"))] == [left, broken]
    assert [job["id"] for job in listed(run("list", "--json", "--limit", "1"))] == [left]
    assert listed(run("list", "--json", "--captioner", "nobody")) == []


@pytest.mark.parametrize("columns", ["40", "80", "200"])
def test_the_table_fits_and_cuts_no_id(run: Run, api: LiveApi, worker: ScriptedWorker, columns: str) -> None:
    ids = [succeeded(api, worker), failed(api, worker), waiting(api)]
    shown = run("list", COLUMNS=columns).stdout
    assert max(map(len, shown.splitlines())) <= int(columns)
    for job_id in ids:
        assert job_id in shown
    assert "a dog runs" in " ".join(shown.replace("│", " ").split())


def test_an_empty_list_is_told(run: Run) -> None:
    assert run("list").stdout == "There are no such jobs.\n"


def test_a_state_that_is_none_is_refused(run: Run) -> None:
    refused = run("list", "--state", "lost")
    assert refused.exit_code == 2
    assert "--state: lost is no state; there are queued, running" in refused.stderr


def test_a_job_is_shown_with_all_that_operators_ask(run: Run, api: LiveApi, worker: ScriptedWorker) -> None:
    job_id = failed(api, worker)
    shown = " ".join(run("show", job_id, COLUMNS="200").stdout.split())
    for told in (job_id, "1 of 3", worker.name, "It crashed.", "[engine_crashed]", "queue 0.", "total 0."):
        assert told in shown
    document = json.loads(run("show", job_id, "--json").stdout)
    assert document["error"]["code"] == "engine_crashed"
    assert document["record"]["worker"] == worker.name
    assert document["record"]["upload_kept"] is True
    unknown = run("show", "0" * 32)
    assert (unknown.exit_code, "There is no job" in unknown.stderr) == (1, True)


def test_a_failed_job_runs_again_with_all_its_attempts(
    run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    job_id = failed(api, worker)
    created = job_of(jobs, job_id).created_at
    time.sleep(0.3)
    assert run("requeue", job_id).stdout == f"{job_id} waits again.\n"
    again = job_of(jobs, job_id)
    assert (again.state, again.attempt, again.error, again.progress) == ("queued", 0, None, 0)
    assert (again.started_at, again.ended_at, again.created_at) == (None, None, created)
    assert listed(run("list", "--json", "--state", "queued"))[0]["id"] == job_id
    assert job_id not in jobs.server.zrange(jobs.keys.expiry, 0, -1), "its end is not its end"
    worker.succeed(worker.take())
    ended = job_of(jobs, job_id)
    assert ended.state == "succeeded"
    assert ended.took is not None
    assert ended.ended_at is not None
    assert ended.took < ended.ended_at - ended.created_at - 0.25, "seconds count from when it was put back"


def test_a_canceled_job_runs_again(run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    job_id = waiting(api)
    claim = worker.take()
    api.client.delete(f"/jobs/{job_id}")
    assert jobs.stop(claim)
    assert run("requeue", job_id).exit_code == 0
    taken = worker.take()
    assert taken.job.id == job_id
    assert jobs.beat(taken, "decode", 0.1) == "go", "its cancellation is forgotten"
    assert not jobs.succeed(claim, {}), "the old attempt counts for nothing"


def test_what_cannot_run_again_stays_and_says_why(
    run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    done, broken = succeeded(api, worker), failed(api, worker)
    api.service.blobs.remove(f"uploads/{broken}")
    result = run("requeue", done, broken, "0" * 32)
    assert result.exit_code == 1
    assert f"Job {done} is succeeded: only failed and canceled jobs are put back." in result.stderr
    assert f"The upload of job {broken} is not kept any more." in result.stderr
    assert "There is no job 000" in result.stderr
    assert job_of(jobs, broken).state == "failed"


def test_a_job_that_is_fetched_needs_no_upload(run: Run, jobs: Jobs, worker: ScriptedWorker) -> None:
    fetched = Submission(source_url="https://films.example/a.mp4")
    jobs.submit("a" * 32, CaptionOptions(), f"uploads/{'a' * 32}", submission=fetched)
    assert jobs.fail(worker.take(), EngineCrashed("It crashed."))
    assert run("requeue", "a" * 32).exit_code == 0


def test_a_dead_letter_runs_again(run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    job_id = waiting(api)
    job = job_of(jobs, job_id)
    jobs.bury(job_id, job.entry, job.priority, "it cannot be read")
    assert run("requeue", job_id).stdout == f"{job_id} waits again.\n"
    assert worker.take().job.id == job_id


def test_jobs_are_canceled_as_by_the_api(run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    done, running, left = succeeded(api, worker), waiting(api), waiting(api)
    claim = worker.take()
    assert run("cancel", done, running, left).stdout.splitlines() == [
        f"{done} is over already: it has succeeded.",
        f"{running} is told to stop.",
        f"{left} is canceled.",
    ]
    assert job_of(jobs, done).state == "succeeded"
    assert jobs.beat(claim, "decode", 0.1) == "canceled"
    assert left not in api.uploads


def test_purge_deletes_what_it_says_and_nothing_else(
    run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    done, broken, left = succeeded(api, worker), failed(api, worker), waiting(api)
    dry = run("purge", "--state", "succeeded,failed", "--dry-run")
    assert "2 would be purged" in dry.stdout
    assert {job_of(jobs, each).state for each in (done, broken)} == {"succeeded", "failed"}
    assert "1 are purged" in run("purge", "--state", "succeeded").stdout
    assert [job_of(jobs, each).state for each in (done, broken, left)] == ["expired", "failed", "queued"]
    assert not api.service.blobs.exists(f"results/{done}")
    assert done not in api.uploads
    assert "0 are purged" in run("purge", "--older-than", "1h").stdout
    lines = [json.loads(line) for line in run("purge", "--older-than", "0s", "--json").stdout.splitlines()]
    assert [(line["id"], line["state"], line["purged"]) for line in lines] == [(broken, "failed", True)]
    assert lines[0]["bytes"] == BLOCK  # of seven bytes
    assert sorted(api.uploads) == [left], "a job that waits is not touched"


def test_purge_takes_named_jobs_and_asks_for_something(
    run: Run, api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    done, left = succeeded(api, worker), waiting(api)
    assert "1 are purged" in run("purge", done, left).stdout
    assert (job_of(jobs, done).state, job_of(jobs, left).state) == ("expired", "queued")
    nothing = run("purge")
    assert nothing.exit_code == 2
    assert "Say what is to be purged" in nothing.stderr
    assert "write 90s, 30m, 12h or 7d" in run("purge", "--older-than", "a week").stderr


def test_purge_walks_over_many_pages(run: Run, jobs: Jobs, worker: ScriptedWorker) -> None:
    for number in range(450):
        name = f"{number:032x}"
        jobs.submit(name, CaptionOptions(), f"uploads/{name}")
        jobs.cancel(name)
    assert "450 would be purged" in run("purge", "--state", "canceled", "--dry-run").stdout
