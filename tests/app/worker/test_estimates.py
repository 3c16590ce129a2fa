"""What a caption will cost is told without writing one: of clips, of films, and of what cannot be read."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.documents.job import JobDocument, document_of
from app.jobs.job import Submission
from app.jobs.options import CaptionOptions
from app.jobs.redis_client import connect
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import assert_problem, live_api
from tests.app.workers import Service, service
from tests.media import write_video


@pytest.fixture(scope="module")
def crew(redis_server: RedisServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    settings = Settings(
        data=tmp_path_factory.mktemp("data"),
        namespace=f"estimates-{uuid.uuid4().hex[:12]}",
        engine="tests.app.engines:Measured",
        beat_seconds=0.1,
    )
    with (
        connect(redis_server.url, patience=5) as client,
        service(client, redis_server.url, settings) as running,
    ):
        running.start_worker()
        yield running


def validated(crew: Service, video: Path, **options: Any) -> JobDocument:
    job_id = uuid.uuid4().hex
    crew.blobs.write(f"uploads/{job_id}", video.read_bytes())
    wanted = CaptionOptions.model_validate({"captioner": "echo", **options})
    told = Submission(validate_only=True)
    crew.jobs.submit(job_id, wanted, f"uploads/{job_id}", submission=told)
    return document_of(crew.wait(job_id), crew.blobs)


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("clip") / "clip.mp4", frames=20)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_video(tmp_path_factory.mktemp("film") / "film.mp4", frames=70, fps=1)


def test_a_clip_is_estimated_by_its_decoding_and_its_captioner(crew: Service, clip: Path) -> None:
    found = validated(crew, clip)
    assert (found.state, found.progress, found.caption, found.captions) == ("succeeded", 1.0, None, None)
    assert found.validate_only
    assert found.media is not None
    assert found.media.frames == 20
    assert found.sampled is not None
    assert len(found.sampled) == 4
    assert found.estimate is not None
    assert (found.estimate.frames, found.estimate.segments) == (4, None)
    assert found.estimate.seconds is not None
    assert 2.0 < found.estimate.seconds < 10.0  # the engine says two seconds a caption
    assert crew.blobs.names("results") == set()


@pytest.mark.parametrize(("segments", "count"), [(None, 12), ("shots", 12), ("10", 7)])
def test_a_film_is_estimated_by_its_segments(
    crew: Service, film: Path, segments: str | None, count: int
) -> None:
    found = validated(crew, film, segments=segments).estimate
    assert found is not None
    assert (found.segments, found.frames) == (count, 4 * count)
    assert found.seconds is not None
    assert 2.0 * (count + 1) < found.seconds < 2.0 * (count + 1) + 20.0


def test_a_film_that_is_not_cut_is_estimated_as_a_whole(crew: Service, film: Path) -> None:
    found = validated(crew, film, segments="none").estimate
    assert found is not None
    assert (found.segments, found.frames) == (None, 4)


def test_what_cannot_be_captioned_says_so(crew: Service, clip: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video at all" * 100)
    found = validated(crew, broken)
    assert found.error is not None
    assert (found.state, found.error.code) == ("failed", "not_a_video")
    refused = validated(crew, clip, captioner="nobody")
    assert refused.error is not None
    assert refused.error.code == "unknown_captioner"
    assert validated(crew, clip, prompt="Who?").error is not None


def test_nothing_is_estimated_where_nobody_measured(crew: Service, clip: Path) -> None:
    found = validated(crew, clip, captioner="sleep-0").estimate
    assert found is not None
    assert found.seconds is None


def test_an_estimate_is_asked_for_by_http(crew: Service, clip: Path) -> None:
    with live_api(crew.settings) as api:
        headers = {"Prefer": "wait=30"}
        files, fields = {"video": ("clip.mp4", clip.read_bytes())}, {"validate_only": "true"}
        response = api.client.post("/caption", files=files, data=fields, headers=headers)
        assert response.status_code == 200
        body = response.json()
        assert body["estimate"]["frames"] == 4
        assert (body["validate_only"], body["caption"]) == (True, None)
        path = response.headers["location"]
        said = assert_problem(api.client.get(f"{path}/attention"), 404, "no_attention")
        assert "validate_only" in said["detail"]
        assert_problem(api.client.get(f"{path}/captions.vtt"), 404, "no_captions")
        again = api.client.post(f"{path}/recaption", headers=headers)
        assert again.json()["caption"].startswith("4 frames")
