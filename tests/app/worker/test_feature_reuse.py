"""Jobs of a video that was captioned before: answered from kept features, bit by bit as from the file."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis

from app.feature_cache.feature_cache import KeptFeatures
from app.jobs.job import Job, JobLimits, Keys, Submission
from app.jobs.options import CaptionOptions
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.workers import Service, eventually, service
from tests.media import write_video

FACTS = ("media", "sampled", "warnings")


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "clip.mp4", frames=20)


@pytest.fixture
def crew(server: redis.Redis, redis_server: RedisServer, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    settings = Settings(
        data=tmp_path,
        namespace=keys.namespace,
        engine="tests.app.engines:Fed",
        lease_seconds=2,
        beat_seconds=0.1,
        batch_jobs=2,
        min_free_bytes=0,
    )
    with service(server, redis_server.url, settings) as running:
        yield running


def without_upload(
    crew: Service, video: Path, captioner: str, told: Submission | None = None, **options: Any
) -> str:
    """A job of a file whose digest alone is known: what has to be read of it is missing."""
    job_id = uuid.uuid4().hex
    sha256 = hashlib.sha256(video.read_bytes()).hexdigest()
    told = (told or Submission()).model_copy(update={"sha256": sha256})
    wanted = CaptionOptions.model_validate({"captioner": captioner, **options})
    return crew.jobs.submit(job_id, wanted, f"uploads/{job_id}", submission=told).id


def given(job: Job) -> str:
    """What the engine was given."""
    assert job.state == "succeeded", job.error
    return str(job.answer["model"]["options"]["given"])


def entries(crew: Service) -> list[Path]:
    folder = crew.settings.data / "features"
    return sorted(folder.iterdir()) if folder.exists() else []


def results(crew: Service, job: Job) -> dict[str, bytes]:
    names = ["attention.json", *(f"frames/{number}.jpg" for number in range(len(job.answer["sampled"])))]
    return {name: crew.blobs.read(f"{job.results}/{name}") for name in names}


def test_the_same_captioner_answers_the_same_without_the_file(crew: Service, video: Path) -> None:
    crew.start_worker()
    first = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    again = crew.wait(without_upload(crew, video, "echo"))
    assert (given(first), given(again)) == ("frames", "streams")
    assert again.answer["caption"] == first.answer["caption"]
    assert {name: again.answer[name] for name in FACTS} == {name: first.answer[name] for name in FACTS}
    assert results(crew, again) == results(crew, first)
    assert set(again.timings) == set(first.timings)
    assert again.timings["decode"] == 0.0


def test_captioners_that_share_streams_share_an_entry(crew: Service, video: Path) -> None:
    crew.start_worker()
    first = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    second = crew.wait(without_upload(crew, video, "shout"))
    assert given(second) == "streams"
    assert second.answer["caption"] == first.answer["caption"].upper()
    assert given(crew.wait(crew.submit(video, "other"))) == "frames"
    eventually(lambda: len(entries(crew)) == 2)
    failed = crew.wait(without_upload(crew, write_video(video.with_name("b.mp4"), frames=9), "echo"))
    assert (failed.error or {})["code"] == "upload_missing"


def test_no_key_learns_that_another_has_sent_a_file(crew: Service, video: Path) -> None:
    crew.start_worker()
    first = crew.wait(crew.submit(video, submission=Submission(owner="ada")))
    eventually(lambda: len(entries(crew)) == 1)
    his = crew.wait(crew.submit(video, submission=Submission(owner="bob")))
    assert (given(first), given(his)) == ("frames", "frames")
    assert his.timings["decode"] != 0.0
    assert given(crew.wait(without_upload(crew, video, "shout", Submission(owner="ada")))) == "streams"


def test_a_damaged_entry_is_a_miss(crew: Service, video: Path) -> None:
    crew.start_worker()
    first = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    (entry,) = entries(crew)
    entry.write_bytes(entry.read_bytes()[:-1])
    again = crew.wait(crew.submit(video))
    assert (given(again), again.answer["caption"]) == ("frames", first.answer["caption"])
    eventually(lambda: len(entries(crew)) == 1)
    assert given(crew.wait(crew.submit(video))) == "streams"


def test_features_that_the_engine_cannot_read_cost_an_attempt_and_go(crew: Service, video: Path) -> None:
    crew.start_worker()
    first = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    (entry,) = entries(crew)
    entry.write_bytes(replace(KeptFeatures.unpack(entry.read_bytes()), streams=b"no streams").pack())
    again = crew.wait(crew.submit(video))
    assert (given(again), again.attempt) == ("frames", 2)
    assert again.answer["caption"] == first.answer["caption"]
    eventually(lambda: len(entries(crew)) == 1)
    third = crew.wait(crew.submit(video))
    assert (given(third), third.attempt) == ("streams", 1)


@pytest.mark.parametrize(
    "environment",
    [{"REELWORD_FEATURE_CACHE_BYTES": "0"}, {"REELWORD_MIN_FREE_BYTES": str(1 << 60)}],
    ids=["off", "disk full"],
)
def test_jobs_are_done_where_nothing_can_be_kept(
    crew: Service, video: Path, environment: dict[str, Any]
) -> None:
    crew.start_worker(**environment)
    assert [given(crew.wait(crew.submit(video))) for _ in range(2)] == ["frames", "frames"]
    assert entries(crew) == []


def test_a_captioner_that_looks_at_frames_reads_the_file_again(crew: Service, video: Path) -> None:
    crew.start_worker(REELWORD_ENGINE="tests.app.engines:Obedient")
    assert [crew.wait(crew.submit(video)).state for _ in range(2)] == ["succeeded", "succeeded"]
    assert entries(crew) == []


def test_hits_and_misses_share_a_batch(crew: Service, video: Path, tmp_path: Path) -> None:
    crew.start_worker()
    known = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    other = write_video(tmp_path / "other.mp4", frames=7)
    crew.stop_all()
    ids = [crew.submit(video, "shout"), crew.submit(other)]
    crew.start_worker()
    hit, miss = (crew.wait(job_id) for job_id in ids)
    assert (given(hit), given(miss)) == ("streams", "frames")
    assert hit.answer["caption"] == known.answer["caption"]  # digits have no capitals
    assert results(crew, hit)["frames/0.jpg"] == results(crew, known)["frames/0.jpg"]
    assert results(crew, miss)["frames/0.jpg"] != results(crew, known)["frames/0.jpg"]


def test_features_go_with_their_job_s_result_on_each_machine(crew: Service, video: Path) -> None:
    """Also those of a file whose digest a worker alone has read, deleted while that worker was away."""
    crew.start_worker()
    job = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    crew.stop_all()
    assert crew.jobs.expire(job.id)
    crew.start_worker()
    eventually(lambda: entries(crew) == [])


def test_two_workers_at_once_agree(crew: Service, video: Path) -> None:
    ids = [crew.submit(video, captioner) for captioner in ("echo", "shout") * 6]
    crew.start_worker()
    crew.start_worker()
    done = [crew.wait(job_id) for job_id in ids]
    assert {job.state for job in done} == {"succeeded"}
    assert len({job.answer["caption"].lower() for job in done}) == 1
    assert len({results(crew, job)["frames/2.jpg"] for job in done}) == 1
    assert len(entries(crew)) == 1


def test_a_worker_killed_while_jobs_run_leaves_a_cache_that_works(crew: Service, video: Path) -> None:
    ids = [crew.submit(video, "echo") for _ in range(8)]
    worker = crew.start_worker()
    crew.wait(ids[0])
    worker.kill()
    worker.wait()
    crew.start_worker()
    captions = {crew.wait(job_id).answer["caption"] for job_id in ids}
    assert len(captions) == 1
    assert given(crew.wait(without_upload(crew, video, "echo"))) == "streams"


def test_limits_of_a_key_count_for_what_is_kept(crew: Service, video: Path) -> None:
    """What is too long or too large for them is left to the decoder, which says so."""
    crew.start_worker()
    first = crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    media = first.answer["media"]
    seconds, pixels = media["duration"], media["width"] * media["height"]
    enough = JobLimits(seconds=seconds, pixels=pixels)
    assert given(crew.wait(without_upload(crew, video, "echo", Submission(limits=enough)))) == "streams"
    for limits in (JobLimits(seconds=seconds - 0.1), JobLimits(pixels=pixels - 1)):
        job = crew.wait(without_upload(crew, video, "echo", Submission(limits=limits)))
        assert (job.error or {})["code"] == "upload_missing"


def test_a_film_that_is_to_be_cut_is_read_whatever_is_kept(crew: Service, video: Path) -> None:
    crew.start_worker()
    crew.wait(crew.submit(video))
    eventually(lambda: len(entries(crew)) == 1)
    job = crew.wait(without_upload(crew, video, "echo", segments="1"))
    assert (job.error or {})["code"] == "upload_missing"
