"""Searching a service's jobs: those whose results are kept, by caption and by the frames in the blobs."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from app.cli.main import cli
from app.jobs.blobs import Blobs
from app.jobs.job_store import Jobs
from app.jobs.keeping.kept_segments import SegmentFolder
from app.jobs.options import CaptionOptions
from app.search.jobs import moments_of_jobs, search_service
from app.settings import Settings
from app.terminal import PROGRAM
from tests.app.scripted_worker import FRAME_SIZE, SAMPLED, ScriptedWorker
from tests.app.segments.colour_space import ColourSpace, Vectors


@pytest.fixture
def blobs(settings: Settings) -> Blobs:
    return Blobs(settings.blob_url, settings.staging)


@pytest.fixture
def worker(jobs: Jobs, blobs: Blobs) -> ScriptedWorker:
    return ScriptedWorker(jobs, blobs)


def finish(jobs: Jobs, worker: ScriptedWorker, *names: str) -> None:
    """Jobs that have succeeded, one after the other."""
    for name in names:
        jobs.submit(name, CaptionOptions(), f"uploads/{name}", filename=f"{name}.mp4")
        worker.succeed(worker.take())


def test_jobs_that_have_succeeded_are_moments(jobs: Jobs, worker: ScriptedWorker, blobs: Blobs) -> None:
    finish(jobs, worker, "first", "second")
    jobs.submit("waiting", CaptionOptions(), "uploads/waiting", filename="waiting.mp4")
    found = list(moments_of_jobs(jobs, blobs))
    assert [moment.source for moment in found] == ["second.mp4 second", "first.mp4 first"]
    assert {moment.caption for moment in found} == {"a dog runs"}
    assert {(moment.start, moment.end, moment.time) for moment in found} == {(0.0, 4.0, SAMPLED[2])}
    assert found[0].picture().size == FRAME_SIZE


def test_each_segment_of_a_film_is_a_moment(jobs: Jobs, worker: ScriptedWorker, blobs: Blobs) -> None:
    jobs.submit("film", CaptionOptions(segments="2"), "uploads/film", filename="film.mp4")
    claim = worker.take()
    folder = SegmentFolder(blobs, claim.results, "basis")
    for number, text in enumerate(("a cat", "a dog")):
        picture = io.BytesIO()
        Image.new("RGB", (8, 8), "red").save(picture, "JPEG")
        segment = {"start": 2.0 * number, "end": 2.0 * number + 2, "representative": 2.0 * number + 1}
        folder.show(picture.getvalue(), None)
        folder.hold({**segment, "caption": text, "captions": []}, {})
        folder.close()
    jobs.succeed(claim, {"caption": "animals", "segments": vars(folder.kept)})
    found = list(moments_of_jobs(jobs, blobs))
    assert [(each.start, each.time, each.caption) for each in found] == [
        (0.0, 1.0, "a cat"),
        (2.0, 3.0, "a dog"),
    ]
    assert found[1].picture().size == (8, 8)


def test_a_result_that_has_expired_meanwhile_is_grey(
    jobs: Jobs, worker: ScriptedWorker, blobs: Blobs
) -> None:
    finish(jobs, worker, "gone")
    [moment] = moments_of_jobs(jobs, blobs)
    for key in [f"{jobs_results(jobs, 'gone')}/frames/{number}.jpg" for number in range(len(SAMPLED))]:
        blobs.remove(key)
    assert moment.picture().getcolors() is not None


def jobs_results(jobs: Jobs, job_id: str) -> str:
    job = jobs.get(job_id)
    assert job is not None
    return job.results


class RedSpace(ColourSpace):
    """Words mean red."""

    def sentences(self, sentences: Sequence[str]) -> Vectors:
        return super().sentences(["250 10 10" for _ in sentences])


def test_of_equal_captions_the_picture_decides(
    jobs: Jobs, worker: ScriptedWorker, blobs: Blobs, settings: Settings
) -> None:
    finish(jobs, worker, "grey", "red", "blue")
    for name, colour in (("red", (250, 10, 10)), ("blue", (10, 10, 250))):
        picture = io.BytesIO()
        Image.fromarray(np.full((64, 96, 3), colour, np.uint8)).save(picture, "JPEG")
        blobs.write(f"{jobs_results(jobs, name)}/frames/{len(SAMPLED) // 2}.jpg", picture.getvalue())
    found = search_service("dog", settings, RedSpace(), 3)
    assert [each.moment.source.split()[1] for each in found] == ["red", "grey", "blue"]
    assert len(search_service("dog", settings, None, 2)) == 2
    assert search_service("cat", settings, None, 3) == []


def test_the_command_searches_jobs(
    jobs: Jobs, worker: ScriptedWorker, settings: Settings, tmp_path: Path
) -> None:
    finish(jobs, worker, "one")
    (tmp_path / "weights").mkdir()
    environment = {
        "REELWORD_DATA": str(settings.data),
        "REELWORD_WEIGHTS": str(tmp_path / "weights"),
        "REELWORD_NAMESPACE": settings.namespace,
        "REDIS_URL": str(settings.redis_url),
    }
    arguments = ["search", "a dog", "--jobs", "--json", "--sheet", str(tmp_path / "sheet.png")]
    run = CliRunner().invoke(cli, arguments, env=environment, prog_name=PROGRAM)
    assert run.exit_code == 0, run.stderr
    assert [each["source"] for each in json.loads(run.stdout)] == ["one.mp4 one"]
    assert (tmp_path / "sheet.png").exists()
    for wrong in (["search", "dog"], ["search", "dog", "film.mp4", "--jobs"]):
        assert CliRunner().invoke(cli, wrong, env=environment, prog_name=PROGRAM).exit_code == 2
