"""Films in the service: cut by the worker, told segment by segment, gone on with after a kill."""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import redis
import webvtt

from app.api.following.event_reader import JobChange
from app.documents.job import JobSegment, document_of, kept_segments
from app.documents.segments import SegmentDocument, film_of
from app.documents.subtitles import to_vtt
from app.jobs.blobs import Blobs
from app.jobs.job import Job, JobLimits, Keys, Submission
from app.jobs.keeping.kept_segments import attention_key, frame_key
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.segments.loading import load_film_captioner, segment_options
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from models.caption import AttentionDocument
from tests.app.worker.test_worker import child_of, settings_for
from tests.app.workers import PAUSE, Service, eventually, service
from tests.extractors.shots.scenes import cuts_of, texture, write_patterns, write_scenes
from tests.media import Picture, without_index, write_video

LENGTHS = [3.0, 4.0, 2.5, 6.0, 3.0]
STARTS = [0.0, *cuts_of(LENGTHS)]


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_scenes(tmp_path_factory.mktemp("films") / "film.mp4", LENGTHS)


@pytest.fixture(scope="module")
def patterns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_patterns(tmp_path_factory.mktemp("patterns") / "film.mp4", LENGTHS)


@pytest.fixture(scope="module")
def video(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("video") / "clip.mp4", frames=20)


@pytest.fixture
def crew(server: redis.Redis, redis_server: RedisServer, keys: Keys, tmp_path: Path) -> Iterator[Service]:
    with service(server, redis_server.url, settings_for(tmp_path, keys.namespace)) as running:
        yield running


@pytest.fixture(scope="module")
def staffed(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = settings_for(tmp_path_factory.mktemp("staffed"), f"films-{uuid.uuid4().hex[:12]}")
    with (
        connect(redis_server.url, patience=5) as client,
        service(client, redis_server.url, settings) as running,
    ):
        running.start_worker()
        yield running


def starts(job: Job, blobs: Blobs) -> list[float]:
    return [round(each.start, 3) for each in document_of(job, blobs).segments or []]


def test_a_film_is_captioned_by_its_shots(staffed: Service, film: Path) -> None:
    job = staffed.wait(staffed.submit(film, segments="shots"))
    document = document_of(job, staffed.blobs)
    assert (job.state, job.attempt, document.error) == ("succeeded", 1, None)
    assert starts(job, staffed.blobs) == STARTS
    assert document.segments is not None
    assert document.segments[-1].end == pytest.approx(sum(LENGTHS))
    assert document.segments[0].caption.startswith("4 frames of")
    assert all(each.start <= each.representative < each.end for each in document.segments)
    assert document.model is not None
    assert document.model.options is not None
    assert document.model.options["segments"] == "shots"
    assert set(job.timings) == {"queue", "decode", "extract", "caption", "total"}
    assert staffed.blobs.exists(f"uploads/{job.id}")  # as long as the result


def test_each_segment_is_told_once_to_those_who_follow(staffed: Service, film: Path) -> None:
    job = staffed.wait(staffed.submit(film, segments="shots"))
    entries: Any = staffed.jobs.server.xrange(staffed.jobs.keys.events(job.id))
    changes = [JobChange.read(job.id, entry, fields) for entry, fields in entries]
    assert [number for change in changes for number in change.segments] == list(range(len(STARTS)))
    assert [change.is_end for change in changes] == [False] * (len(changes) - 1) + [True]
    progress = [change.standing.progress for change in changes]
    assert progress == sorted(progress)


def test_its_own_caption_is_of_what_stands_for_its_segments(staffed: Service, film: Path) -> None:
    job = staffed.wait(staffed.submit(film, segments="shots"))
    document = document_of(job, staffed.blobs)
    assert document.caption is not None
    assert document.caption.startswith("4 frames of")
    shown = {round(each.representative, 4) for each in document.segments or []}
    assert len(document.sampled or []) == 4
    assert set(document.sampled or []) < shown
    assert staffed.blobs.exists(f"{job.results}/frames/3.jpg")
    told = AttentionDocument.model_validate_json(staffed.blobs.read(f"{job.results}/attention.json"))
    assert [start for start, _ in told.times] == pytest.approx(document.sampled)


def test_a_segment_of_so_many_seconds(staffed: Service, film: Path) -> None:
    job = staffed.wait(staffed.submit(film, segments="6"))
    assert starts(job, staffed.blobs) == [0.0, 6.0, 12.0]


def test_without_a_word_a_short_film_stays_whole(staffed: Service, film: Path) -> None:
    job = staffed.wait(staffed.submit(film))
    assert document_of(job, staffed.blobs).segments is None
    assert job.answer["model"]["options"]["segments"] == "none"
    (whole,) = film_of(job, staffed.blobs).segments
    assert (whole.start, whole.end, whole.caption) == (0.0, 18.5, job.answer["caption"])


def test_without_a_word_a_film_of_a_minute_is_cut(staffed: Service, tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "minute.mp4", [15.0] * 4, fps=5)
    job = staffed.wait(staffed.submit(film), seconds=180)
    assert starts(job, staffed.blobs) == [0.0, 15.0, 30.0, 45.0]
    assert job.answer["model"]["options"]["segments"] == "shots"
    whole = staffed.wait(staffed.submit(film, segments="none"), seconds=180)
    assert document_of(whole, staffed.blobs).segments is None


def test_a_film_of_one_shot_is_captioned_as_a_clip(staffed: Service, tmp_path: Path) -> None:
    film = write_scenes(tmp_path / "one.mp4", [6.0])
    cut, whole = (staffed.wait(staffed.submit(film, segments=how)) for how in ("shots", "none"))
    assert starts(cut, staffed.blobs) == [0.0]
    assert cut.answer["caption"] == whole.answer["caption"]
    assert cut.answer["sampled"] == whole.answer["sampled"]


@pytest.mark.parametrize("segments", [None, "none", "shots"])
@pytest.mark.parametrize(
    ("limits", "code"),
    [
        (JobLimits(seconds=10), "too_long"),
        (JobLimits(pixels=1000), "too_many_pixels"),
        (JobLimits(seconds=1000, pixels=10**9), None),
    ],
)
def test_a_key_s_limits_are_kept_once_the_film_is_opened(
    staffed: Service, film: Path, segments: str | None, limits: JobLimits, code: str | None
) -> None:
    submission = Submission(owner="ada", limits=limits)
    job = staffed.wait(staffed.submit(film, submission=submission, segments=segments))
    assert (None if job.error is None else job.error["code"]) == code


def test_segments_are_told_as_they_are_done(crew: Service, film: Path) -> None:
    crew.start_worker()
    job_id = crew.submit(film, "sleep-0.5", segments="shots")
    seen: list[tuple[list[JobSegment], float]] = []
    while not (job := crew.job(job_id)).is_over:
        seen.append((document_of(job, crew.blobs).segments or [], job.progress))
        time.sleep(0.1)
    shown = [segments for segments, _ in seen]
    assert all(later[: len(sooner)] == sooner for sooner, later in pairwise(shown))
    assert {1, 3, 5} <= set(map(len, shown))
    progress = [share for _, share in seen]
    assert progress == sorted(progress)
    assert any(0.1 < share < 0.9 for share in progress)


def test_a_killed_worker_s_film_goes_on_behind_its_last_segment(crew: Service, film: Path) -> None:
    worker = crew.start_worker()
    job_id = crew.submit(film, "sign-0.7", segments="2.5")
    crew.wait(job_id, lambda job: len(starts(job, crew.blobs)) >= 3)
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    known = film_of(crew.job(job_id), crew.blobs).segments
    crew.start_worker()
    job = crew.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 1)  # the first one had finished segments
    segments = film_of(job, crew.blobs).segments
    assert [each.start for each in segments] == [0.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0]
    writers = [each.caption.rsplit(" by ")[1] for each in segments]
    assert segments[: len(known)] == known
    assert len(known) <= writers.index(writers[-1]) < len(segments)  # those are of the second engine alone
    assert len(set(writers)) == 2
    for number, each in enumerate(segments):
        assert crew.blobs.read(frame_key(job.results, number)).startswith(b"\xff\xd8")
        told = crew.blobs.read(f"{job.results}/segments/{number}/attention.json")
        assert AttentionDocument.model_validate_json(told).words == each.caption.split()


def test_a_worker_that_leaves_hands_its_film_back_with_its_segments(crew: Service, film: Path) -> None:
    worker = crew.start_worker()
    job_id = crew.submit(film, "sign-0.7", segments="2.5")
    crew.wait(job_id, lambda job: len(starts(job, crew.blobs)) >= 3)
    worker.terminate()
    assert worker.wait(10) == 0
    handed_back = crew.job(job_id)
    assert (handed_back.state, handed_back.attempt) == ("queued", 0)
    known = film_of(handed_back, crew.blobs).segments
    assert len(known) >= 3
    crew.start_worker()
    job = crew.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert film_of(job, crew.blobs).segments[: len(known)] == known


def test_an_engine_killed_amid_a_film_costs_neither_attempt_nor_segment(crew: Service, film: Path) -> None:
    worker = crew.start_worker()
    job_id = crew.submit(film, "sign-0.7", segments="2.5")
    crew.wait(job_id, lambda job: len(starts(job, crew.blobs)) >= 3)
    child_of(worker.pid, "app.worker.engine.child").kill()
    job = crew.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 1)
    segments = film_of(job, crew.blobs).segments
    assert len(segments) == 7
    assert len({each.caption.rsplit(" by ")[1] for each in segments}) == 2


def test_a_film_ends_though_each_segment_costs_an_engine(crew: Service, film: Path) -> None:
    worker = crew.start_worker()
    job = crew.wait(crew.submit(film, "once", segments="2.5"), seconds=180)
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert len(starts(job, crew.blobs)) == 7
    # seven segments and the summary, each by an engine of its own; the worker tells so every two seconds
    eventually(lambda: crew.info(worker).engine_restarts == 7)


def test_a_film_that_kills_at_one_segment_fails_and_keeps_those_before_it(
    crew: Service, tmp_path: Path
) -> None:
    """The third segment is black, and the engine dies of it each time."""
    film = write_video(tmp_path / "dark.mp4", frames=80, fps=10, painter=black_from(50))
    crew.start_worker()
    job_id = crew.submit(film, "dark", segments="2.5")
    job = crew.wait(job_id, seconds=180)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "engine_crashed", 3)
    document = document_of(job, crew.blobs)
    assert [each.start for each in document.segments or []] == [0.0, 2.5]
    assert document.caption is None
    assert "scene" not in to_vtt(film_of(job, crew.blobs))
    for number in range(2):
        kept = kept_segments(job, crew.blobs)
        assert kept is not None
        assert crew.blobs.read(frame_key(kept.folder, number)).startswith(b"\xff\xd8")
    crew.jobs.cancel(job_id)
    crew.jobs.expire(job_id)
    assert document_of(crew.job(job_id), crew.blobs).segments is None


def test_a_worker_that_dies_of_a_film_at_its_first_segment_has_gained_nothing(
    crew: Service, film: Path
) -> None:
    job_id = crew.submit(film, "sleep-30", segments="2.5")
    for attempt in (1, 2, 3):
        worker = crew.start_worker()
        crew.wait(job_id, lambda job, attempt=attempt: (job.stage, job.attempt) == ("extract", attempt))  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    crew.start_worker()
    job = crew.wait(job_id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "worker_lost", 3)
    assert document_of(job, crew.blobs).segments is None


@pytest.fixture
def joining(crew: Service) -> Service:
    """A service whose engine takes pictures of one colour for alike."""
    crew.settings = crew.settings.model_copy(update={"engine": "tests.app.engines:Joining"})
    return crew


def test_neighbours_that_are_alike_are_one_segment(joining: Service, film: Path, tmp_path: Path) -> None:
    """Cut every second and a half, those that lie within one scene are one again."""
    joining.start_worker()
    job = joining.wait(joining.submit(film, segments="1.5"), seconds=180)
    segments = film_of(job, joining.blobs).segments
    assert len(segments) < 12
    assert {each.merged for each in segments} > {1, 2}
    assert sum(each.merged for each in segments) == 12
    assert all(one.end == other.start for one, other in pairwise(segments))
    for number, each in enumerate(segments):
        told = joining.blobs.read(attention_key(job.results, number))
        times = AttentionDocument.model_validate_json(told).times
        assert [round(start, 3) for start, _ in times] == [round(time, 3) for time in each.sampled]
        assert joining.blobs.exists(frame_key(job.results, number))
    assert not joining.blobs.exists(frame_key(job.results, len(segments)))


def test_a_segment_that_was_growing_when_its_worker_died_grows_on(joining: Service, film: Path) -> None:
    worker = joining.start_worker()
    whole = film_of(joining.wait(joining.submit(film, segments="1.5")), joining.blobs).segments
    job_id = joining.submit(film, "sleep-0.3", segments="1.5")
    for progress in (0.2, 0.45, 0.7):
        joining.wait(job_id, lambda job, progress=progress: job.progress > progress)  # type: ignore[misc]
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        worker = joining.start_worker()
    job = joining.wait(job_id)
    assert (job.state, job.attempt) == ("succeeded", 1)
    assert film_of(job, joining.blobs).segments == whole


@pytest.mark.parametrize("command", ["sleep-0.5", "sleep-30"])
def test_a_film_is_canceled_within_two_seconds(staffed: Service, film: Path, command: str) -> None:
    job_id = staffed.submit(film, command, segments="2.5")
    staffed.wait(job_id, lambda job: job.stage == "extract")
    began = time.monotonic()
    assert staffed.jobs.cancel(job_id) == "asked"
    assert staffed.wait(job_id).state == "canceled"
    assert time.monotonic() - began < 2 + PAUSE
    assert staffed.wait(staffed.submit(film)).state == "succeeded"
    assert not staffed.blobs.exists(f"uploads/{job_id}")
    assert not staffed.blobs.exists(f"results/{job_id}")


def test_each_segment_has_the_job_s_whole_time(crew: Service, film: Path) -> None:
    crew.start_worker(REELWORD_JOB_SECONDS="8")
    began = time.monotonic()
    job = crew.wait(crew.submit(film, "sleep-2.5", segments="2.5"))
    assert (job.state, time.monotonic() - began > 8) == ("succeeded", True)
    late = crew.wait(crew.submit(film, "hang", segments="2.5"))
    assert late.error is not None
    assert (late.state, late.error["code"], late.attempt) == ("failed", "deadline_exceeded", 1)
    assert "No segment of the film" in late.error["message"]


def test_clips_do_not_wait_for_films_and_films_wait_for_any_worker(
    crew: Service, film: Path, video: Path
) -> None:
    films = [crew.submit(film, "sleep-0.5", segments="2.5") for _ in range(2)]
    clip = crew.submit(video)
    crew.start_worker(REELWORD_BATCH_JOBS="4")
    crew.wait(clip)
    assert not any(crew.job(job_id).is_over for job_id in films)
    crew.wait(films[0], lambda job: bool(starts(job, crew.blobs)))
    assert [crew.job(job_id).state for job_id in films] == ["running", "queued"]
    done = [crew.wait(job_id) for job_id in films]
    assert [(job.state, job.attempt) for job in done] == [("succeeded", 1)] * 2


def test_clips_go_between_a_film_s_segments(crew: Service, film: Path, video: Path) -> None:
    crew.start_worker()
    long = crew.submit(film, "sleep-0.5", segments="1")
    crew.wait(long, lambda job: job.progress > 0.05)
    assert crew.wait(crew.submit(video)).state == "succeeded"
    assert not crew.job(long).is_over
    whole = crew.wait(long, seconds=90)
    assert (whole.state, whole.attempt) == ("succeeded", 1)
    assert starts(whole, crew.blobs) == [float(second) for second in range(19)]


def test_a_film_has_limits_as_a_whole(crew: Service, film: Path) -> None:
    crew.start_worker(REELWORD_MAX_SEGMENTS="4")
    many = [crew.wait(crew.submit(film, segments=segments)) for segments in ("1", "shots")]
    assert [(job.error or {})["code"] for job in many] == ["too_many_segments"] * 2
    assert starts(many[1], crew.blobs)[:4] == STARTS[:4]  # those that were done are kept
    crew.stop_all()
    crew.start_worker(REELWORD_MAX_FILM_PIXELS="1000000")
    large = crew.wait(crew.submit(film, segments="shots"))
    assert (large.error or {})["code"] == "film_too_large"


def black_from(first: int) -> Callable[[int, int, int], Picture]:
    """Pictures of a scene, and nothing but black from a frame on."""

    def paint(index: int, width: int, height: int) -> Picture:
        shown = texture(0, width, height) if index < first else texture(0, width, height) * 0
        return np.roll(shown, index, axis=1)

    return paint


def test_a_film_that_cannot_be_read_fails_by_name(staffed: Service, film: Path, tmp_path: Path) -> None:
    job = staffed.wait(staffed.submit(without_index(film, tmp_path / "cut.mp4"), segments="shots"))
    assert job.error is not None
    assert (job.state, job.error["code"], job.attempt) == ("failed", "incomplete_file", 1)
    refused = staffed.wait(staffed.submit(film, "refuse", segments="shots"))
    assert refused.error is not None
    assert (refused.state, refused.error["code"]) == ("failed", "unknown_captioner")
    assert document_of(refused, staffed.blobs).segments is None


def test_the_service_and_the_command_line_cut_a_film_alike(
    crew: Service, patterns: Path, tmp_path: Path
) -> None:
    """With the real captioner and the real embedding, and neighbours that are joined."""
    crew.start_worker(
        REELWORD_ENGINE="app.pipeline.engine:Engine", REELWORD_CAPTIONERS="stats", REELWORD_DEVICE="cpu"
    )
    job_id = crew.submit(patterns, "stats", segments="1.5")
    settings = Settings(data=tmp_path / "alone", captioners="stats", device="cpu")
    settings.data.mkdir()
    alone = load_film_captioner(settings, CaptionOptions(captioner="stats"), segment_options("1.5"))
    document = alone.caption(patterns)
    served = film_of(crew.wait(job_id, seconds=180), crew.blobs)
    assert any(each.merged > 1 for each in document.segments)
    assert len(document.segments) > 3
    assert [essence(each) for each in served.segments] == [essence(each) for each in document.segments]
    assert served.summary == document.summary


def essence(segment: SegmentDocument) -> dict[str, Any]:
    """All but scores, whose last digit depends on what shares a batch, and the attention."""
    return segment.model_dump(include={"start", "end", "representative", "caption", "sampled", "merged"})


def test_the_real_captioner_writes_a_film_s_segments(crew: Service, patterns: Path) -> None:
    """With its own weights, in a real worker: subtitles, attention of each segment, a line about all."""
    crew.start_worker(
        REELWORD_ENGINE="app.pipeline.engine:Engine", REELWORD_CAPTIONERS="stats", REELWORD_DEVICE="cpu"
    )
    job = crew.wait(crew.submit(patterns, "stats", segments="shots"), seconds=180)
    document = document_of(job, crew.blobs)
    assert (job.state, document.error) == ("succeeded", None)
    assert starts(job, crew.blobs) == STARTS
    assert document.caption
    cues = webvtt.from_string(to_vtt(film_of(job, crew.blobs))).captions
    assert [cue.text for cue in cues] == [each.caption for each in document.segments or []]
    for number, each in enumerate(document.segments or []):
        told = AttentionDocument.model_validate_json(crew.blobs.read(attention_key(job.results, number)))
        assert told.words == each.caption.split()
        assert each.start <= told.times[0][0] < told.times[-1][1] <= each.end + 0.001
    whole = AttentionDocument.model_validate_json(crew.blobs.read(f"{job.results}/attention.json"))
    assert whole.words == document.caption.split()
    assert whole.times[-1][1] == pytest.approx(sum(LENGTHS), abs=0.01)
