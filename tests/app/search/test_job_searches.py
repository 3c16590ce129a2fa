"""``GET /search`` from the API to a worker's engine and back: by words and by meaning, each owner its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import redis

from app.api.routes import search as search_route
from app.jobs.blobs import Blobs
from app.jobs.job import Keys, Submission
from app.jobs.job_store import Jobs
from app.jobs.options import CaptionOptions
from app.pipeline.engine_protocol import SemanticVectors
from app.search.searches import Search, Searches
from app.settings import Settings
from app.worker.engine.process import EngineDied, EngineProcess
from app.worker.job_searches import JobSearches
from extractors.features import Frames
from tests.app.live_api import LiveApi
from tests.app.scripted_worker import ScriptedWorker, repeating

MINE, HIS = "a" * 32, "b" * 32
WAYS = {"a puppy": 0, "a dog runs": 0, "a red car": 1}


class Embedding(EngineProcess):
    """Has an engine that knows what three sentences mean, or dies of being asked."""

    is_ready = True
    dies = False

    def embed(self, pictures: Sequence[Frames], sentences: Sequence[str]) -> SemanticVectors | None:
        if self.dies:
            raise EngineDied("it was asked")
        ways = np.eye(3, dtype=np.float32)
        return SemanticVectors(ways[[2] * len(pictures)], ways[[WAYS.get(text, 2) for text in sentences]])


@pytest.fixture
def engine(settings: Settings) -> Embedding:
    return Embedding(settings)


@contextmanager
def answering(
    server: redis.Redis, keys: Keys, jobs: Jobs, settings: Settings, engine: Embedding
) -> Iterator[None]:
    """A worker that does nothing but answer searches."""
    blobs = Blobs(settings.blob_url, settings.staging)
    searches = JobSearches(Searches(server, keys), jobs, blobs, engine)
    with repeating(searches.answer_next, pause=0.02):
        yield


@pytest.fixture
def films(jobs: Jobs, settings: Settings) -> None:
    worker = ScriptedWorker(jobs, Blobs(settings.blob_url, settings.staging))
    for owner, name in (("ann", MINE), ("bob", HIS)):
        sent = Submission(owner=owner)
        jobs.submit(name, CaptionOptions(), f"uploads/{name}", filename=f"{name}.mp4", submission=sent)
        worker.succeed(worker.take())
    worker.advertise("stats")


@pytest.mark.usefixtures("films")
def test_a_moment_is_found_by_what_its_caption_means(
    api: LiveApi, server: redis.Redis, keys: Keys, jobs: Jobs, settings: Settings, engine: Embedding
) -> None:
    with answering(server, keys, jobs, settings, engine):
        answer = api.client.get("/search", params={"q": " a puppy ", "limit": 5})
        nothing = api.client.get("/search", params={"q": "a red car"})
        his = api.client.get("/search", params={"q": "a puppy", "job": [HIS, "c" * 32]})
        engine.dies = True
        by_words = api.client.get("/search", params={"q": "dog", "limit": 1})
    assert answer.status_code == 200
    moments = answer.json()["moments"]
    assert [each["job"] for each in moments] == [HIS, MINE]
    assert moments[0]["source"] == f"{HIS}.mp4 {HIS}"
    assert api.client.get(moments[0]["picture"]).headers["Content-Type"] == "image/jpeg"
    assert [each["job"] for each in his.json()["moments"]] == [HIS]
    assert nothing.json() == {"moments": []}
    assert [each["caption"] for each in by_words.json()["moments"]] == ["a dog runs"]


@pytest.mark.usefixtures("films")
def test_a_search_of_one_owner_sees_no_other_ones_jobs(
    server: redis.Redis, keys: Keys, jobs: Jobs, settings: Settings, engine: Embedding
) -> None:
    with answering(server, keys, jobs, settings, engine):
        answer = Searches(server, keys).ask(
            Search(words="a dog", count=5, owner="ann", until=time.time() + 20, root="/reel")
        )
    assert answer is not None
    assert '"picture":"/reel/jobs/' in answer
    assert MINE in answer
    assert HIS not in answer


def test_a_search_that_no_worker_answers_is_refused_by_name_and_forgotten(
    api: LiveApi, server: redis.Redis, keys: Keys, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_route, "PATIENCE", 0.1)
    for _ in range(2):  # without a worker, and with one that is busy
        refused = api.client.get("/search", params={"q": "a dog"})
        assert (refused.status_code, refused.json()["code"]) == (503, "search_unanswered")
        worker.advertise("stats")
    assert Searches(server, keys).take() is None
    for wrong in ({}, {"q": "  "}, {"q": "a dog", "limit": "0"}):
        assert api.client.get("/search", params=wrong).json()["code"] == "invalid_request"
