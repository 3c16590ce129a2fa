"""Jobs whose videos workers fetch: real processes, a real Redis, a server of films on loopback."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from app.jobs.job import Job, JobLimits, Keys, Submission
from app.jobs.options import CaptionOptions
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.film_server import FilmServer, film_server
from tests.app.workers import PAUSE, Service, eventually, service
from tests.media import write_video


@pytest.fixture
def films(tmp_path: Path) -> Iterator[FilmServer]:
    with film_server(write_video(tmp_path / "clip.mp4", frames=20).read_bytes()) as server:
        yield server


@pytest.fixture
def crew(server: redis.Redis, redis_server: RedisServer, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    settings = Settings(
        data=tmp_path / "data",
        namespace=keys.namespace,
        engine="tests.app.engines:Obedient",
        lease_seconds=2,
        beat_seconds=0.1,
        drain_seconds=1,
        batch_jobs=4,
        url_hosts="127.0.0.1",
    )
    with service(server, redis_server.url, settings) as running:
        yield running


def submit(
    crew: Service, url: str, limits: JobLimits | None = None, owner: str | None = None, **options: Any
) -> str:
    job_id = uuid.uuid4().hex
    wanted = CaptionOptions.model_validate({"captioner": "echo", **options})
    told = Submission(source_url=url, limits=limits, owner=owner)
    return crew.jobs.submit(job_id, wanted, f"uploads/{job_id}", submission=told).id


def fetching(job: Job) -> bool:
    return job.stage == "fetch"


def staged(crew: Service) -> list[Path]:
    return list(crew.settings.staging.glob("*"))


def test_a_job_with_an_address_ends_like_any_other(crew: Service, films: FilmServer) -> None:
    crew.start_worker()
    job = crew.wait(submit(crew, films.url()))
    assert (job.state, job.attempt, job.progress) == ("succeeded", 1, 1.0)
    assert str(job.answer["caption"]).startswith("4 frames of")
    assert job.timings["fetch"]
    assert crew.blobs.read(job.upload) == films.film  # kept like an upload
    assert staged(crew) == []


def test_several_come_side_by_side_and_nobody_waits_for_their_servers(
    crew: Service, films: FilmServer, tmp_path: Path
) -> None:
    slow = [submit(crew, films.url("/slow")) for _ in range(2)]
    quick = crew.submit(write_video(tmp_path / "other.mp4", frames=5))
    crew.start_worker()
    assert crew.wait(quick).state == "succeeded"
    eventually(lambda: all(fetching(crew.job(job_id)) for job_id in slow))
    for job_id in slow:
        assert crew.jobs.cancel(job_id) == "asked"


def test_slow_servers_of_one_owner_hold_up_nobody(crew: Service, films: FilmServer, tmp_path: Path) -> None:
    slow = [submit(crew, films.url("/slow"), owner="ada") for _ in range(20)]
    crew.start_worker()
    eventually(lambda: any(fetching(crew.job(job_id)) for job_id in slow))
    file = crew.submit(write_video(tmp_path / "other.mp4", frames=5))
    address = submit(crew, films.url(), owner="bob")
    assert [crew.wait(job_id).state for job_id in (file, address)] == ["succeeded"] * 2
    assert sum(fetching(crew.job(job_id)) for job_id in slow) <= 4 + 1  # one that came as the worker was idle
    for job_id in slow:
        crew.jobs.cancel(job_id)


@pytest.mark.parametrize(
    ("path", "code"),
    [("/status/404", "url_not_found"), ("/status/403", "url_refused"), ("/endless", "url_too_large")],
)
def test_a_video_that_cannot_be_had_fails_its_job_by_name(
    crew: Service, films: FilmServer, path: str, code: str
) -> None:
    crew.start_worker(REELWORD_MAX_UPLOAD_BYTES="200000")
    job = crew.wait(submit(crew, films.url(path)))
    assert (job.state, job.attempt) == ("failed", 1)
    assert job.error is not None
    assert job.error["code"] == code
    assert (staged(crew), crew.blobs.names("uploads")) == ([], set())


def test_a_key_s_own_limit_holds_for_what_is_fetched(crew: Service, films: FilmServer) -> None:
    crew.start_worker()
    job = crew.wait(submit(crew, films.url(), JobLimits(upload_bytes=len(films.film) - 1)))
    assert job.error is not None
    assert job.error["code"] == "url_too_large"


def test_private_hosts_are_refused_unless_they_are_named(crew: Service, films: FilmServer) -> None:
    crew.start_worker(REELWORD_URL_HOSTS="films.example")
    job = crew.wait(submit(crew, films.url()))
    assert job.error is not None
    assert job.error["code"] == "url_not_allowed"
    assert films.asked == []


def test_a_worker_fetches_nothing_where_that_is_off(crew: Service, films: FilmServer) -> None:
    crew.start_worker(REELWORD_URLS="off")
    job = crew.wait(submit(crew, films.url()))
    assert job.error is not None
    assert job.error["code"] == "url_not_allowed"
    assert films.asked == []


def test_a_cancelled_job_stops_fetching_at_once(crew: Service, films: FilmServer) -> None:
    crew.start_worker()
    job_id = submit(crew, films.url("/slow"))
    crew.wait(job_id, fetching)
    began = time.monotonic()
    assert crew.jobs.cancel(job_id) == "asked"
    assert crew.wait(job_id).state == "canceled"
    eventually(lambda: staged(crew) == [])
    assert time.monotonic() - began < 2 + PAUSE
    assert crew.wait(submit(crew, films.url())).state == "succeeded"


def test_a_job_s_own_time_ends_its_fetching(crew: Service, films: FilmServer) -> None:
    crew.start_worker(REELWORD_JOB_SECONDS="1")
    ids = [submit(crew, films.url("/slow")) for _ in range(2)]
    for job in map(crew.wait, ids):
        assert job.error is not None
        assert (job.state, job.error["code"]) == ("failed", "deadline_exceeded")
    assert staged(crew) == []


def test_a_worker_killed_in_the_middle_costs_an_attempt(crew: Service, films: FilmServer) -> None:
    """Its half-written file is nobody's any more, and goes with the next sweep."""
    first = crew.start_worker()
    job_id = submit(crew, films.url("/slow"))
    crew.wait(job_id, fetching)
    eventually(lambda: len(staged(crew)) == 1)
    first.send_signal(signal.SIGKILL)
    crew.start_worker()
    assert crew.wait(job_id, lambda job: job.attempt == 2 and fetching(job)).state == "running"
    assert crew.blobs.sweep(older_than=0.0) == 1
    assert crew.jobs.cancel(job_id) == "asked"
    crew.wait(job_id)
    eventually(lambda: staged(crew) == [], 2)


def test_a_worker_told_to_stop_hands_the_job_back(crew: Service, films: FilmServer) -> None:
    first = crew.start_worker()
    job_id = submit(crew, films.url("/slow"))
    crew.wait(job_id, fetching)
    first.send_signal(signal.SIGTERM)
    assert first.wait(10) == 0
    job = crew.job(job_id)
    assert (job.state, job.attempt) == ("queued", 0)
    assert staged(crew) == []


def test_a_second_attempt_finds_what_the_first_has_fetched(crew: Service, films: FilmServer) -> None:
    crew.start_worker()
    job = crew.wait(submit(crew, films.url(), captioner="segfault"))
    assert (job.state, job.attempt) == ("failed", 3)
    assert films.asked == ["/clip.mp4"]
