"""The client against the real API, with real Redis and a worker that answers by a script."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from app.errors import EngineCrashed
from reelword import AsyncClient, Client, JobFailed, Refused
from tests.app.live_api import LiveApi
from tests.app.scripted_worker import WORDS, ScriptedWorker, working

pytestmark = pytest.mark.slow

CAPTION = " ".join(WORDS)


@pytest.fixture
def client(api: LiveApi) -> Iterator[Client]:
    with Client(f"http://127.0.0.1:{api.port}") as client:
        yield client


def test_a_caption_comes_with_its_attention(client: Client, worker: ScriptedWorker) -> None:
    worker.advertise("stats")
    with working(worker):
        job = client.caption(b"a video", num_captions=1, timeout=20)
    assert (job.caption, job.state) == (CAPTION, "succeeded")
    assert job.captions is not None
    assert job.captions[0].words[0].word == WORDS[0]
    assert job.media is not None
    assert job.media.duration == 4.0
    attention = client.attention(job)
    assert attention.words == list(WORDS)
    assert len(attention.temporal) == len(WORDS)
    assert client.attention_png(job).startswith(b"\x89PNG")
    assert CAPTION in client.captions(job, "vtt")
    assert [each.name for each in client.models().captioners] == ["stats"]


def test_the_same_awaited(api: LiveApi, worker: ScriptedWorker) -> None:
    async def run() -> tuple[str | None, list[str]]:
        async with AsyncClient(f"http://127.0.0.1:{api.port}") as client:
            jobs = await asyncio.gather(*(client.caption(b"a video", timeout=20) for _ in range(3)))
            attention = await client.attention(jobs[0])
            return jobs[2].caption, attention.words

    with working(worker):
        assert asyncio.run(run()) == (CAPTION, list(WORDS))


def test_a_failed_job_says_why(client: Client, worker: ScriptedWorker) -> None:
    job = client.submit(b"a video")
    worker.jobs.fail(worker.take(), EngineCrashed("The engine crashed."))
    ended = client.wait(job, timeout=10)
    assert ended.error is not None
    assert (ended.state, ended.error.code) == ("failed", EngineCrashed.code)
    assert "The engine crashed." in str(JobFailed(ended))


def test_cancelling_ends_a_job_that_waits(client: Client) -> None:
    job = client.submit(b"a video")
    assert client.cancel(job).state == "canceled"
    assert client.wait(job.id, timeout=5).state == "canceled"


def test_a_refusal_has_the_accepted_values(client: Client, worker: ScriptedWorker) -> None:
    worker.advertise("stats", "g2l")
    with pytest.raises(Refused) as raised:
        client.submit(b"a video", captioner="nobody")
    assert raised.value.code == "unknown_captioner"
    assert {"stats", "g2l"} <= set(raised.value.known or [])
