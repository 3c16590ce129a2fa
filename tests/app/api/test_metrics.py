"""What ``/metrics`` says, parsed as Prometheus parses it, after real jobs: each end counted once."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
import redis
from prometheus_client.parser import text_string_to_metric_families

from app.errors import EngineCrashed
from app.jobs.job import Keys
from app.jobs.job_store import Claim, Jobs, Refusal
from app.jobs.redis_client import LuaScript
from app.operations.service_figures import BOUNDS, SecondsFigures
from app.settings import Settings
from app.webhooks.delivery_store import script_of
from extractors.media.errors import NotAVideo
from tests.app.live_api import LiveApi, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.worker.test_worker import settings_for
from tests.app.workers import Service, eventually, service
from tests.media import write_video

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def read(api: LiveApi) -> Samples:
    """Each sample of the exposition; a metric that is told twice or has no help is an error."""
    text = api.client.get("/metrics").text
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert [family.name for family in families if not family.documentation] == []
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, tuple(sorted(labels.items()))]


def histogram(samples: Samples, stage: str) -> tuple[float, float]:
    """How many were measured, and their sum; the buckets must rise to that."""
    rising = [
        amount
        for (name, labels), amount in samples.items()
        if name == "reelword_job_stage_seconds_bucket" and ("stage", stage) in labels
    ]
    assert len(rising) == len(BOUNDS) + 1
    assert rising == sorted(rising)
    count = value(samples, "reelword_job_stage_seconds_count", stage=stage)
    assert rising[-1] == count
    return count, value(samples, "reelword_job_stage_seconds_sum", stage=stage)


def test_everything_is_there_before_the_first_job(api: LiveApi) -> None:
    samples = read(api)
    assert value(samples, "reelword_redis_up") == 1
    for state in ("succeeded", "failed", "canceled"):
        assert value(samples, "reelword_jobs_ended_total", state=state) == 0
    assert histogram(samples, "decode") == (0, 0)
    assert value(samples, "process_resident_memory_bytes") > 1e6


def test_ends_are_counted_once_whichever_api_is_asked(
    api: LiveApi, settings: Settings, worker: ScriptedWorker, jobs: Jobs
) -> None:
    finished(api, worker)
    finished(api, worker)
    send(api)
    claim = worker.take()
    assert jobs.fail(claim, NotAVideo("It is no video."), {"timings": {"decode": 0.7}})
    assert jobs.fail(claim, NotAVideo("It is no video.")), "the same call, repeated, is no second end"
    send(api)
    assert jobs.fail(worker.take(), EngineCrashed("It crashed."))
    api.client.delete(send(api).headers["location"])
    with live_api(settings) as other:
        for samples in (read(api), read(other), read(api)):
            assert value(samples, "reelword_jobs_accepted_total") == 5
            assert value(samples, "reelword_jobs_ended_total", state="succeeded") == 2
            assert value(samples, "reelword_jobs_ended_total", state="failed") == 2
            assert value(samples, "reelword_jobs_ended_total", state="canceled") == 1
            assert value(samples, "reelword_job_failures_total", code="not_a_video") == 1
            assert value(samples, "reelword_job_failures_total", code="engine_crashed") == 1
            assert value(samples, "reelword_decode_rejects_total", code="not_a_video") == 1
            assert ("reelword_decode_rejects_total", (("code", "engine_crashed"),)) not in samples
            assert list(histogram(samples, "decode")) == pytest.approx([3, 0.1 + 0.1 + 0.7])
            assert list(histogram(samples, "caption")) == pytest.approx([2, 0.6])
            assert histogram(samples, "queue")[0] == histogram(samples, "total")[0] == 4


def test_jobs_leave_the_state_that_they_expire_from(api: LiveApi, worker: ScriptedWorker) -> None:
    gone, kept = finished(api, worker), finished(api, worker)
    send(api)
    worker.take()
    send(api)
    api.client.delete(gone)
    api.client.delete(gone)
    samples = read(api)
    counts = {state: value(samples, "reelword_jobs", state=state) for state in ("queued", "running")}
    assert counts == {"queued": 1, "running": 1}
    assert value(samples, "reelword_jobs", state="succeeded") == 1
    assert value(samples, "reelword_jobs_ended_total", state="succeeded") == 2
    assert api.client.get(kept).json()["state"] == "succeeded"


def test_age_is_that_of_the_job_that_waits_longest(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    assert value(read(api), "reelword_queue_oldest_job_seconds", priority="normal") == 0
    send(api)
    time.sleep(0.6)
    send(api)
    assert value(read(api), "reelword_queue_oldest_job_seconds", priority="normal") >= 0.6
    first = worker.take()
    younger = value(read(api), "reelword_queue_oldest_job_seconds", priority="normal")
    assert jobs.hand_back(first)
    assert value(read(api), "reelword_queue_oldest_job_seconds", priority="normal") >= younger + 0.6
    assert value(read(api), "reelword_queue_jobs", priority="normal") == 2
    assert value(read(api), "reelword_queue_oldest_job_seconds", priority="high") == 0


def test_the_last_attempt_of_several_counts_as_failed_and_as_retries(
    api: LiveApi, worker: ScriptedWorker, jobs: Jobs
) -> None:
    send(api)
    taken: Claim | Refusal = worker.take()
    while isinstance(taken, Claim):
        taken = jobs.claim_again(taken, EngineCrashed("It crashed."))
    samples = read(api)
    assert value(samples, "reelword_job_retries_total") == jobs.attempts - 1
    assert value(samples, "reelword_job_failures_total", code="engine_crashed") == 1
    assert histogram(samples, "total")[0] == 1


def test_counts_of_another_type_are_put_aside(api: LiveApi, worker: ScriptedWorker, jobs: Jobs) -> None:
    jobs.server.set(jobs.keys.counts, "nonsense")
    assert value(read(api), "reelword_jobs_ended_total", state="succeeded") == 0
    finished(api, worker)
    samples = read(api)
    assert value(samples, "reelword_jobs_ended_total", state="succeeded") == 1
    assert value(samples, "reelword_dead_letters") == 1


def test_attempts_at_webhooks_are_counted_once(api: LiveApi, server: redis.Redis, keys: Keys) -> None:
    settle = server.register_script(script_of("settle"))
    for state in ("pending", "delivered", "delivered"):
        server.hset(keys.delivery("a"), mapping={"attempt": 1, "state": "pending"})
        names = [keys.deliveries, keys.delivery("a"), keys.delivery_attempts("a"), keys.counts]
        for _ in range(2):  # the second time of an ended one is another process's, and changes nothing
            if state != "pending" or server.zcard(keys.deliveries) == 0:
                settle(keys=names, args=["a", 1, state, 60_000, "{}", 5, 60])
    samples = read(api)
    assert value(samples, "reelword_webhook_attempts_total", outcome="retried") == 1
    assert value(samples, "reelword_webhook_attempts_total", outcome="delivered") == 2
    assert value(samples, "reelword_webhook_attempts_total", outcome="failed") == 0
    assert value(samples, "reelword_webhooks_pending") == 0


def test_buckets_are_the_scripts_own(server: redis.Redis) -> None:
    listed = re.search(r"local BOUNDS = \{(.*)\}", LuaScript(server, "finish").text)
    assert listed is not None
    assert tuple(re.findall(r"'([\d.]+)'", listed[1])) == BOUNDS


def test_a_bucket_of_an_older_version_is_added_to_the_next() -> None:
    rising = dict(SecondsFigures({"0.05": 1, "0.07": 2, "+Inf": 4, "1": 8}, 0.0).cumulative)
    assert (rising["0.05"], rising["0.1"], rising["1"], rising["3600"], rising["+Inf"]) == (1, 3, 11, 11, 15)


@pytest.fixture
def crew(server: redis.Redis, api: LiveApi, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    """Workers on the API's Redis, namespace and folder."""
    settings = settings_for(tmp_path, keys.namespace)
    with service(server, str(api.service.settings.redis_url), settings) as running:
        yield running


def test_real_workers_are_measured(crew: Service, api: LiveApi, tmp_path: Path) -> None:
    began = time.time()
    worker = crew.start_worker()
    video = write_video(tmp_path / "clip.mp4", frames=5)
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video at all" * 100)
    for file, captioner in ((video, "echo"), (video, "refuse"), (broken, "echo"), (video, "segfault")):
        crew.wait(crew.submit(file, captioner), seconds=60)
    eventually(lambda: value(read(api), "reelword_engine_restarts", worker=crew.info(worker).name) >= 2)
    samples, name = read(api), crew.info(worker).name
    assert value(samples, "reelword_jobs_ended_total", state="succeeded") == 1
    assert value(samples, "reelword_job_failures_total", code="unknown_captioner") == 1
    assert value(samples, "reelword_job_failures_total", code="not_a_video") == 1
    assert value(samples, "reelword_job_failures_total", code="engine_crashed") == 1
    assert value(samples, "reelword_decode_rejects_total", code="not_a_video") == 1
    assert value(samples, "reelword_job_retries_total") == 2
    count, seconds = histogram(samples, "total")
    assert count == 4
    assert 0 < seconds < 4 * (time.time() - began)
    assert histogram(samples, "decode")[0] == 2, "refused and captioned; a crash leaves no answer"
    for process in ("worker", "engine", "decoder"):
        size = value(samples, "reelword_worker_resident_memory_bytes", worker=name, process=process)
        assert 10e6 < size < 4e9
    started = value(samples, "reelword_worker_start_time_seconds", worker=name)
    assert began <= started <= value(samples, "reelword_engine_start_time_seconds", worker=name)


def test_the_manual_lists_each_metric_and_no_other(api: LiveApi, root: Path) -> None:
    families = text_string_to_metric_families(api.client.get("/metrics").text)
    names = {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if family.name.startswith("reelword_") and not family.name.endswith("_created")
    }
    assert names == set(re.findall(r"^\| `(reelword_\w+)`", (root / "docs/operate.md").read_text(), re.M))
