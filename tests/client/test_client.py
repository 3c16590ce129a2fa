"""The client against answers that are written here: what it sends, sends again, and makes of them."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from reelword import AsyncClient, Client, JobFailed, NotFinished, Refused, Unreachable

JOB = "0" * 32
Answer = Callable[[httpx.Request], httpx.Response]


def job(state: str = "queued", etag: str | None = '"1"', **members: Any) -> httpx.Response:
    headers = {"ETag": etag} if etag else {}
    return httpx.Response(200, json={"id": JOB, "state": state, "progress": 0.0, **members}, headers=headers)


def accepted() -> httpx.Response:
    return httpx.Response(202, json={"id": JOB, "state": "queued", "urls": {}})


def problem(status: int, code: str, **headers: str) -> httpx.Response:
    body = {"code": code, "detail": "It is so.", "hint": "Do this.", "known": ["a", "b"]}
    return httpx.Response(status, json=body, headers=headers)


class Script:
    """Answers requests in turn, and keeps them."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers, self.seen = list(answers), list[httpx.Request]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.seen.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self, **arguments: Any) -> Client:
        return Client("http://service", transport=httpx.MockTransport(self), **arguments)


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    def methods(client: type) -> dict[str, list[str]]:
        members = inspect.getmembers(client, inspect.isfunction)
        return {
            name: list(inspect.signature(method).parameters)
            for name, method in members
            if not name.startswith("_")
        }

    blocking, awaited = methods(Client), methods(AsyncClient)
    awaited["close"] = awaited.pop("aclose")
    assert blocking == awaited
    assert len(blocking) > 15


def test_a_file_and_its_options_go_as_a_form_with_a_key(tmp_path: Path) -> None:
    (tmp_path / "clip.mp4").write_bytes(b"a video")
    script = Script(accepted(), job())
    with script.client(key="rw_1_secret") as client:
        sent_job = client.submit(
            tmp_path / "clip.mp4",
            beam_size=8,
            attention=False,
            members=["g2l", "stats"],
            metadata={"shelf": 3},
        )
    sent = script.seen[0]
    body = sent.read()
    assert (sent.method, sent.url.path) == ("POST", "/caption")
    assert sent.headers["Authorization"] == "Bearer rw_1_secret"
    assert len(sent.headers["Idempotency-Key"]) == 32
    assert b'filename="clip.mp4"' in body
    for part in (b"a video", b"g2l,stats", b'{"shelf": 3}', b"false", b"\r\n8\r\n"):
        assert part in body
    assert (sent_job.id, sent_job.state, sent_job.etag) == (JOB, "queued", '"1"')


@pytest.mark.parametrize("video", [b"a video", io.BytesIO(b"a video")])
def test_what_is_sent_again_is_whole_and_has_the_same_key(video: Any) -> None:
    busy = problem(503, "backlog_full", **{"Retry-After": "0"})
    script = Script(httpx.ConnectError("no"), busy, accepted(), job())
    with script.client() as client:
        client.submit(video)
    posts = script.seen[:3]
    assert {request.method for request in posts} == {"POST"}
    assert len({request.headers["Idempotency-Key"] for request in posts}) == 1
    assert all(b"a video" in request.read() for request in posts)


def test_a_file_that_cannot_be_wound_back_is_sent_once() -> None:
    class Pipe(io.BytesIO):
        def seekable(self) -> bool:
            return False

    script = Script(httpx.ConnectError("no"))
    with script.client() as client, pytest.raises(Unreachable):
        client.submit(Pipe(b"a video"))
    assert len(script.seen) == 1


def test_an_address_goes_as_one() -> None:
    script = Script(accepted(), job())
    with script.client() as client:
        client.submit("https://example.org/clip.mp4", beam_size=2)
    body = script.seen[0].read()
    assert b'name="url"' in body
    assert b"https://example.org/clip.mp4" in body
    assert b"filename" not in body


def test_waiting_holds_a_request_until_the_job_changes() -> None:
    unchanged = httpx.Response(304, headers={"ETag": '"1"'})
    succeeded = job("succeeded", '"2"', caption="a dog runs")
    script = Script(accepted(), job(), unchanged, succeeded)
    with script.client() as client:
        assert client.caption(b"a video").caption == "a dog runs"
    requests = script.seen[2:]
    assert [request.headers["If-None-Match"] for request in requests] == ['"1"', '"1"']
    assert {request.headers["Prefer"] for request in requests} == {"wait=30"}


def test_a_job_without_a_caption_is_an_error_that_says_why() -> None:
    error = {"code": "no_frames", "message": "It has no frames.", "hint": "Send another."}
    script = Script(accepted(), job("failed", error=error))
    with (
        script.client() as client,
        pytest.raises(JobFailed, match=r"It has no frames\. Send another\.") as raised,
    ):
        client.caption(b"a video")
    assert raised.value.job.error is not None
    assert raised.value.job.error.code == "no_frames"


def test_a_job_that_takes_too_long_is_told_and_goes_on() -> None:
    script = Script(accepted(), job(), *[job("running", None) for _ in range(9)])
    with script.client() as client, pytest.raises(NotFinished) as raised:
        client.caption(b"a video", timeout=0.2)
    assert raised.value.job.state == "running"


def test_what_is_refused_is_said_in_the_service_s_words_and_not_sent_again() -> None:
    script = Script(problem(422, "invalid_option"))
    with script.client() as client, pytest.raises(Refused, match=r"It is so\. Do this\.") as raised:
        client.submit(b"a video", beam_size=0)
    assert (raised.value.status, raised.value.code, raised.value.known) == (422, "invalid_option", ["a", "b"])


def test_what_stays_busy_is_refused_in_the_end() -> None:
    script = Script(*[problem(503, "backlog_full", **{"Retry-After": "0"}) for _ in range(3)])
    with script.client(attempts=3) as client, pytest.raises(Refused) as raised:
        client.models()
    assert (raised.value.code, len(script.seen)) == ("backlog_full", 3)


def stream(*events: tuple[str, str, dict[str, Any]]) -> httpx.Response:
    lines = [f"id: {id_}\nevent: {kind}\ndata: {json.dumps(data)}\n\n" for id_, kind, data in events]
    return httpx.Response(200, text="".join(lines), headers={"Content-Type": "text/event-stream"})


def test_events_go_on_where_the_connection_broke() -> None:
    script = Script(
        stream(("1-0", "state", {"state": "queued"}), ("2-0", "state", {"state": "running"})),
        httpx.ConnectError("restarting"),
        stream(("3-0", "end", {"state": "succeeded"})),
    )
    with script.client() as client:
        events = [(event.id, event.kind, event.data["state"]) for event in client.events(JOB)]
    assert events == [
        ("1-0", "state", "queued"),
        ("2-0", "state", "running"),
        ("3-0", "end", "succeeded"),
    ]
    ids = [request.headers.get("Last-Event-ID") for request in script.seen]
    assert ids == [None, "2-0", "2-0"]


def test_all_pages_of_the_list_are_read() -> None:
    def page(*ids: str, cursor: str | None) -> httpx.Response:
        jobs = [{"id": each, "state": "succeeded"} for each in ids]
        return httpx.Response(200, json={"jobs": jobs, "next": cursor})

    script = Script(page("a", "b", cursor="c1"), page("c", cursor=None))
    with script.client() as client:
        assert [each.id for each in client.jobs(state="succeeded", limit=2)] == ["a", "b", "c"]
    assert [dict(request.url.params) for request in script.seen] == [
        {"state": "succeeded", "limit": "2"},
        {"state": "succeeded", "limit": "2", "cursor": "c1"},
    ]


def test_a_search_brings_moments() -> None:
    moment = {"job": "a", "source": "a.mp4 a", "start": 0, "end": 2, "representative": 1}
    found = {"moments": [{**moment, "caption": "a dog", "fit": 1.5, "picture": "/jobs/a/frames/1.jpg"}]}
    script = Script(httpx.Response(200, json=found))
    with script.client() as client:
        assert [each.caption for each in client.search("a dog", limit=3)] == ["a dog"]
    assert dict(script.seen[0].url.params) == {"q": "a dog", "limit": "3"}


def test_a_batch_sends_files_and_addresses_together_and_brings_its_results() -> None:
    counts = {"total": 2, "queued": 2, "running": 0}
    over = {"total": 2, "queued": 0, "running": 0, "succeeded": 2}
    lines = "\n".join(json.dumps({"id": each, "state": "succeeded", "caption": each}) for each in "ab")
    script = Script(
        httpx.Response(202, json={"id": "b1", "counts": counts, "jobs": []}),
        httpx.Response(200, json={"id": "b1", "counts": over, "jobs": []}),
        httpx.Response(200, text=lines),
    )
    with script.client() as client:
        batch = client.batch([b"first", "https://example.org/second.mp4"], captioner="stats")
        assert [each.caption for each in client.wait_batch(batch, timeout=5)] == ["a", "b"]
    body = script.seen[0].read()
    assert b"first" in body
    assert b"https://example.org/second.mp4" in body
    assert script.seen[2].url.path == "/batches/b1/results.jsonl"
