"""Worker processes and what they survive: real processes, a real Redis, real small videos."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import redis

from app.cli.service.run import NICENESS
from app.jobs.job import Keys
from app.jobs.queue import worker_prefix
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from app.worker.intake import QUIET_SECONDS
from models.caption import AttentionDocument
from tests.app.captioners import write_all
from tests.app.workers import PAUSE, Service, eventually, service
from tests.media import cut, without_index, write_video
from tests.models.parts import list_candidates

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "clip.mp4", frames=20)


def settings_for(folder: Path, namespace: str) -> Settings:
    return Settings(
        data=folder,
        namespace=namespace,
        engine="tests.app.engines:Obedient",
        lease_seconds=2,
        beat_seconds=0.1,
        drain_seconds=1,
        cancel_grace=0.2,
        batch_jobs=1,
        job_seconds=60,
    )


@pytest.fixture
def crew(server: redis.Redis, redis_server: RedisServer, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    """A service without workers; each test starts those it needs."""
    with service(server, redis_server.url, settings_for(tmp_path, keys.namespace)) as running:
        yield running


def test_the_ready_file_is_touched_while_the_worker_can_work(crew: Service, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    worker = crew.start_worker(REELWORD_READY_FILE=str(ready))
    eventually(ready.exists)
    first = ready.stat().st_mtime_ns
    eventually(lambda: ready.stat().st_mtime_ns > first)
    crew.jobs.server.client_pause(600, all=True)  # Redis is frozen: the worker is not
    paused = ready.stat().st_mtime_ns
    eventually(lambda: ready.stat().st_mtime_ns > paused)
    worker.send_signal(signal.SIGSTOP)
    last = ready.stat().st_mtime_ns
    time.sleep(0.5)
    assert ready.stat().st_mtime_ns == last, "a worker that is stopped looks alive"
    worker.send_signal(signal.SIGCONT)


@pytest.fixture(scope="module")
def staffed(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service whose one worker outlives the tests that use it, whatever they do to its children."""
    settings = settings_for(tmp_path_factory.mktemp("staffed"), f"staffed-{uuid.uuid4().hex[:12]}")
    with (
        connect(redis_server.url, patience=5) as client,
        service(client, redis_server.url, settings) as running,
    ):
        worker = running.start_worker()
        yield running
        assert worker.poll() is None


def test_workers_of_two_containers_have_two_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one host name, process id and kernel: the start of one must not release the other's jobs."""
    monkeypatch.setattr("app.jobs.queue.socket.gethostname", lambda: "box")
    here = worker_prefix(7)
    assert here == worker_prefix(7) != worker_prefix(8)
    assert here.startswith("box-")
    assert here.endswith("-7")
    monkeypatch.setattr("app.jobs.queue.os.readlink", lambda path: "pid:[4026532999]")
    assert worker_prefix(7) != here


def test_a_job_is_done(staffed: Service, video: Path) -> None:
    job = staffed.wait(staffed.submit(video))
    assert job.state == "succeeded"
    assert job.answer["caption"].startswith("4 frames of")
    assert job.answer["media"]["frames"] == 20
    assert job.answer["sampled"] == [0.2, 0.7, 1.2, 1.7]
    assert job.error is None
    assert set(job.timings) == {"queue", "decode", "extract", "caption", "total"}
    assert staffed.blobs.read(f"{job.results}/frames/3.jpg").startswith(b"\xff\xd8")
    assert not staffed.blobs.exists(f"{job.results}/frames/4.jpg")
    assert b'"words"' in staffed.blobs.read(f"{job.results}/attention.json")
    assert staffed.blobs.read(f"uploads/{job.id}") == video.read_bytes()


def test_an_idle_worker_measures_the_captioners_that_nobody_waited_for(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_ENGINE="tests.app.engines:Unmeasured")

    def seconds() -> dict[str, float | None]:
        return {info.name: info.seconds for info in crew.info(worker).captioners}

    eventually(lambda: seconds() == {"echo": 0.5, "deadly": None, "late": 2.0}, 60)  # one kills its engine
    assert crew.wait(crew.submit(video)).state == "succeeded"
    assert worker.poll() is None


def test_a_worker_that_measures_ends_at_once_where_it_is_told_to(crew: Service) -> None:
    worker = crew.start_worker(REELWORD_ENGINE="tests.app.engines:SlowToMeasure", REELWORD_DRAIN_SECONDS="1")
    time.sleep(QUIET_SECONDS + 2)  # it has been idle long enough, and measures
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0


def test_uploads_are_kept_only_where_the_setting_says(crew: Service, video: Path) -> None:
    crew.start_worker(REELWORD_KEEP_UPLOADS="off")
    job = crew.wait(crew.submit(video))
    eventually(lambda: not crew.blobs.exists(f"uploads/{job.id}"))
    assert job.state == "succeeded"


def test_a_record_without_a_choice_still_runs(staffed: Service, video: Path) -> None:
    """One of an older version, or of a job that was accepted while no worker lived."""
    job = staffed.wait(staffed.submit(video, captioner=None))
    assert job.state == "succeeded"
    assert job.answer["model"]["captioner"] == "echo"


def test_a_bad_file_fails_by_name_once_and_the_next_job_runs(
    staffed: Service, video: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.mp4"
    text.write_text("this is no video")
    bad = staffed.submit(without_index(video, tmp_path / "cut.mp4"))
    worse = staffed.submit(text)
    good = staffed.submit(video)
    assert staffed.wait(good).state == "succeeded"
    assert (staffed.job(bad).state, staffed.job(bad).attempt) == ("failed", 1)
    error = staffed.job(bad).error
    assert error is not None
    assert error["code"] == "incomplete_file"
    assert error["hint"]
    worse_error = staffed.job(worse).error
    assert worse_error is not None
    assert worse_error["code"] == "not_a_video"


def test_a_missing_upload_fails_by_name(staffed: Service, video: Path) -> None:
    busy, job_id = staffed.submit(video, "sleep-1"), staffed.submit(video)
    staffed.blobs.remove(f"uploads/{job_id}")
    assert staffed.wait(busy).state == "succeeded"
    error = staffed.wait(job_id).error
    assert error is not None
    assert error["code"] == "upload_missing"


def test_a_result_that_cannot_be_kept_fails_by_name(staffed: Service, video: Path) -> None:
    busy, job_id = staffed.submit(video, "sleep-1"), staffed.submit(video)
    staffed.blobs.write(f"results/{job_id}", b"a file where a folder should be")
    assert staffed.wait(busy).state == "succeeded"
    job = staffed.wait(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "worker_error", 3)


@pytest.mark.parametrize(
    ("command", "code", "attempts"),
    [("segfault", "engine_crashed", 3), ("raise", "engine_error", 3), ("refuse", "unknown_captioner", 1)],
)
def test_what_the_engine_cannot_do_fails_by_name(
    staffed: Service, video: Path, command: str, code: str, attempts: int
) -> None:
    bad, good = staffed.submit(video, command), staffed.submit(video)
    assert staffed.wait(good).state == "succeeded"
    job = staffed.wait(bad)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", code, attempts)
    assert not staffed.blobs.exists(f"uploads/{bad}")


def test_a_batch_that_dies_costs_only_the_guilty(crew: Service, video: Path) -> None:
    ids = [crew.submit(video, name) for name in ("echo", "segfault", "echo", "echo")]
    crew.start_worker(REELWORD_BATCH_JOBS="4")
    done = [crew.wait(job_id) for job_id in ids]
    assert [job.state for job in done] == ["succeeded", "failed", "succeeded", "succeeded"]
    assert [job.attempt for job in done] == [1, 3, 1, 1]


def test_jobs_that_wait_share_a_batch(crew: Service, video: Path) -> None:
    """Those that are ready when the engine is: while it works, others are read ahead of it."""
    crew.start_worker(REELWORD_BATCH_JOBS="4")
    first = crew.submit(video, "sleep-4")
    crew.wait(first, lambda job: job.stage == "extract")
    ids = [crew.submit(video) for _ in range(6)]
    crew.wait(ids[-1], lambda job: bool(job.answer))
    assert crew.job(first).state == "running"
    together = [crew.wait(job_id).answer["model"]["options"]["together"] for job_id in ids]
    assert together == [4, 4, 4, 4, 2, 2]


def test_a_poison_among_eight_in_hand_costs_the_others_nothing(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_BATCH_JOBS="4", REELWORD_DECODERS="2")
    wishes = ["sleep-4", "echo", "echo", "segfault", "echo", "echo", "echo", "echo"]
    ids = [crew.submit(video, wishes[0])]
    crew.wait(ids[0], lambda job: job.stage == "extract")
    ids += [crew.submit(video, wish) for wish in wishes[1:]]
    eventually(lambda: all(crew.job(job_id).state == "running" for job_id in ids))
    done = [crew.wait(job_id, seconds=90) for job_id in ids]
    assert [job.state for job in done] == ["failed" if wish == "segfault" else "succeeded" for wish in wishes]
    assert [job.attempt for job in done] == [3 if wish == "segfault" else 1 for wish in wishes]
    eventually(lambda: crew.info(worker).engine_restarts == 4)  # once with others


def test_a_job_canceled_while_it_is_read_ends_its_own_decoder_alone(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_DECODERS="2")
    crew.wait(crew.submit(video))  # a decoder that is stopped before it has begun would stop the start
    decoders = [
        child
        for child in psutil.Process(worker.pid).children(recursive=True)
        if "extractors.decoder.child" in child.cmdline()
    ]
    assert len(decoders) == 2
    for decoder in decoders:
        decoder.suspend()
    canceled, kept = crew.submit(video), crew.submit(video)
    for job_id in (canceled, kept):
        crew.wait(job_id, lambda job: job.stage == "decode")
    time.sleep(0.3)  # for their requests to be sent
    assert crew.jobs.cancel(canceled) == "asked"
    assert crew.wait(canceled, seconds=2 + PAUSE).state == "canceled"
    eventually(lambda: sum(decoder.is_running() for decoder in decoders) == 1)
    next(decoder for decoder in decoders if decoder.is_running()).resume()
    job = crew.wait(kept)
    assert (job.state, job.attempt) == ("succeeded", 1)


def test_a_canceled_job_costs_the_next_one_no_engine(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_CANCEL_GRACE="60")
    long = crew.submit(video, "sleep-600")
    crew.wait(long, lambda job: job.stage == "extract")
    assert crew.jobs.cancel(long) == "asked"
    assert crew.wait(crew.submit(video)).state == "succeeded"
    assert (crew.job(long).state, crew.info(worker).engine_restarts) == ("canceled", 0)


def test_a_worker_lets_requests_go_first(crew: Service) -> None:
    worker = crew.start_worker()
    family = [psutil.Process(worker.pid), *psutil.Process(worker.pid).children(recursive=True)]
    assert {process.nice() for process in family} == {max(NICENESS, psutil.Process().nice())}


def test_a_killed_engine_costs_one_attempt_at_once(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_LEASE_SECONDS="60")
    job_id = crew.submit(video, "sleep-2")
    crew.wait(job_id, lambda job: job.stage == "extract")
    engine = child_of(worker.pid, "app.worker.engine.child")
    began = time.monotonic()
    engine.kill()
    crew.wait(job_id, lambda job: job.attempt == 2)
    assert time.monotonic() - began < 30  # not by a lease that lapsed
    job = crew.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 2)
    eventually(lambda: crew.info(worker).engine_restarts == 1)


def test_a_killed_worker_loses_nothing_even_behind_a_backlog(crew: Service, video: Path) -> None:
    workers = [crew.start_worker(), crew.start_worker()]
    lost = crew.submit(video, "sleep-5")
    crew.wait(lost, lambda job: job.stage == "extract")
    backlog = [crew.submit(video, "sleep-0.5") for _ in range(12)]
    holder = next(worker for worker in workers if f"-{worker.pid}-" in crew.holder(lost))
    children = psutil.Process(holder.pid).children(recursive=True)
    holder.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    crew.wait(lost, lambda job: job.attempt == 2)
    assert time.monotonic() - killed < crew.settings.lease_seconds + 3 + PAUSE
    assert crew.wait(lost).state == "succeeded"
    assert sum(crew.job(job_id).is_over for job_id in backlog) < len(backlog)
    eventually(lambda: not any(child.is_running() for child in children))
    attempts = [crew.wait(job_id).attempt for job_id in backlog]
    assert sum(attempts) <= len(attempts) + 1  # that of one which had been read ahead


def test_a_job_that_loses_its_workers_has_failed(crew: Service, video: Path) -> None:
    job_id = crew.submit(video, "sleep-30")
    for attempt in (1, 2, 3):
        worker = crew.start_worker()
        crew.wait(job_id, lambda job, n=attempt: job.attempt == n and job.stage == "extract")  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    crew.start_worker()
    job = crew.wait(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "worker_lost", 3)


@pytest.mark.parametrize("command", ["sleep-30", "hang"])
def test_a_running_job_is_canceled_within_two_seconds(staffed: Service, video: Path, command: str) -> None:
    job_id = staffed.submit(video, command)
    staffed.wait(job_id, lambda job: job.stage == "extract")
    began = time.monotonic()
    assert staffed.jobs.cancel(job_id) == "asked"
    assert staffed.wait(job_id).state == "canceled"
    assert time.monotonic() - began < 2 + PAUSE
    assert staffed.wait(staffed.submit(video)).state == "succeeded"
    assert not staffed.blobs.exists(f"uploads/{job_id}")


def test_a_decoder_that_dies_costs_one_attempt(staffed: Service, video: Path) -> None:
    decoder = suspend_decoder(staffed, video)
    job_id = staffed.submit(video)
    staffed.wait(job_id, lambda job: job.stage == "decode")
    time.sleep(0.3)  # for its request to be sent
    decoder.kill()
    job = staffed.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 2)


def test_a_job_is_canceled_while_its_file_is_read(staffed: Service, video: Path) -> None:
    suspend_decoder(staffed, video)
    job_id = staffed.submit(video)
    staffed.wait(job_id, lambda job: job.stage == "decode")
    staffed.jobs.cancel(job_id)
    assert staffed.wait(job_id, seconds=2 + PAUSE).state == "canceled"
    assert staffed.wait(staffed.submit(video)).state == "succeeded"


def test_a_job_that_hangs_runs_out_of_time(crew: Service, video: Path) -> None:
    crew.start_worker(REELWORD_JOB_SECONDS="1.5")
    job_id = crew.submit(video, "hang")
    job = crew.wait(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "deadline_exceeded", 1)
    assert job.answer["media"]["frames"] == 20
    assert crew.wait(crew.submit(video)).state == "succeeded"


def test_one_that_hangs_does_not_take_its_batch_along(crew: Service, video: Path) -> None:
    ids = [crew.submit(video, name) for name in ("echo", "hang", "echo")]
    crew.start_worker(REELWORD_JOB_SECONDS="1.5", REELWORD_BATCH_JOBS="3")
    done = [crew.wait(job_id) for job_id in ids]
    assert [job.state for job in done] == ["succeeded", "failed", "succeeded"]
    assert [job.attempt for job in done] == [1, 1, 1]


def test_two_workers_share_the_work(crew: Service, video: Path) -> None:
    crew.start_worker()
    crew.start_worker()
    ids = [crew.submit(video, "sleep-0.2") for _ in range(8)]
    done = [crew.wait(job_id) for job_id in ids]
    assert {job.state for job in done} == {"succeeded"}
    assert {job.attempt for job in done} == {1}
    assert len({job.answer["model"]["options"]["pid"] for job in done}) == 2


def test_sigterm_finishes_a_short_job_and_hands_back_a_long_one(crew: Service, video: Path) -> None:
    worker = crew.start_worker()
    short = crew.submit(video, "sleep-0.5")
    crew.wait(short, lambda job: job.stage == "extract")
    worker.terminate()
    assert worker.wait(10) == 0
    assert crew.job(short).state == "succeeded"
    assert crew.registry.workers() == []

    worker = crew.start_worker()
    long = crew.submit(video, "sleep-3")
    crew.wait(long, lambda job: job.stage == "extract")
    worker.terminate()
    assert worker.wait(10) == 0
    job = crew.job(long)
    assert (job.state, job.attempt) == ("queued", 0)
    crew.start_worker()
    began = time.monotonic()
    crew.wait(long, lambda job: job.state == "running")
    assert time.monotonic() - began < 10
    assert crew.wait(long).attempt == 1


def test_expired_results_are_swept_away(crew: Service, video: Path) -> None:
    worker = crew.start_worker(REELWORD_RESULT_TTL="1")
    job_id = crew.submit(video)
    assert crew.wait(job_id).state == "succeeded"
    worker.terminate()
    worker.wait(10)
    time.sleep(2)
    crew.start_worker()
    crew.wait(job_id, lambda job: job.state == "expired" and not crew.blobs.exists(f"results/{job_id}"))


def test_a_file_cut_short_is_not_the_end_of_the_worker(staffed: Service, video: Path, tmp_path: Path) -> None:
    whole = write_video(tmp_path / "whole.mp4", frames=60, container_options={"movflags": "faststart"})
    job = staffed.wait(staffed.submit(cut(whole, tmp_path / "part.mp4", 0.6)))
    assert job.state in ("succeeded", "failed")
    assert job.attempt == 1
    assert staffed.wait(staffed.submit(video)).state == "succeeded"


def test_fusion_is_served_with_all_that_competed(
    crew: Service, video: Path, root: Path, tmp_path: Path
) -> None:
    """The real engine in a real worker, over captioners that know nothing."""
    weights = write_all(tmp_path / "weights", only=("g2l", "refocus"))
    crew.start_worker(
        REELWORD_ENGINE="app.pipeline.engine:Engine", REELWORD_WEIGHTS=str(weights), REELWORD_DEVICE="cpu"
    )
    done = crew.wait(crew.submit(video, "fusion", members="refocus,g2l"), seconds=60)
    assert (done.state, list(done.answer["model"]["members"])) == ("succeeded", ["refocus", "g2l"])
    kept = json.loads(crew.blobs.read(f"{done.results}/attention.json"))
    candidates = list_candidates(AttentionDocument.model_validate(kept))
    assert candidates[0].text == done.answer["caption"]
    refused = crew.wait(crew.submit(video, "fusion", members="refocus,blip"))
    assert refused.error is not None
    assert refused.error["code"] == "unknown_captioner"
    assert "there are: g2l, refocus, stats" in refused.error["message"]


def suspend_decoder(service: Service, video: Path) -> psutil.Process:
    """Suspends the decoder of the first worker, once it has started: a job before shows that it has."""
    assert service.wait(service.submit(video)).state == "succeeded"
    decoder = child_of(service.workers[0].pid, "extractors.decoder.child")
    decoder.suspend()
    return decoder


def child_of(worker: int, module: str) -> psutil.Process:
    children = psutil.Process(worker).children(recursive=True)
    return next(child for child in children if module in child.cmdline())
