"""The client against answers that are written here: what it sends, sends again, and makes of them."""

from __future__ import annotations

import base64
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from app.api.application import create_app
from app.settings import Settings
from reelword import (
    Attention,
    Client,
    Filters,
    Invalid,
    JobFailed,
    NotAllowed,
    NotFinished,
    NotFound,
    RateLimited,
    Refused,
    TooLarge,
    Unreachable,
    verify_webhook,
)

ROOT = Path(__file__).parents[2]

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


def test_the_blocking_half_is_made_of_the_awaited_one(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "client" / "make_blocking.py", tmp_path], check=True)
    for name in ("client.py", "job.py"):
        assert (ROOT / "client" / "reelword" / name).read_text() == (tmp_path / name).read_text()


ATTENTION = {
    "words": ["a", "man", "runs"],
    "content": [False, True, True],
    "times": [[0.0, 2.0], [2.0, 4.0]],
    "temporal": [None, None, None],
    "extras": [{"name": "labels", "words": [None, None, [{"text": "running", "title": "by motion"}]]}],
    "evidence": {
        "temporal": [None, [0.5, 0.5], [0.1, 0.9]],
        "moments": [None, None, 1],
        "boxes": [None, None, [0.1, 0.2, 0.5, 0.9]],
    },
}


def test_words_come_with_their_moments_places_and_labels() -> None:
    script = Script(accepted(), job("succeeded"), httpx.Response(200, json=ATTENTION))
    with script.client() as client:
        article, man, runs = client.caption(b"a video").words
    assert (article.content, article.start, article.evidence) == (False, None, None)
    assert (man.text, man.start, man.evidence) == ("man", None, [0.5, 0.5])  # all along
    assert (runs.start, runs.end, runs.box) == (2.0, 4.0, (0.1, 0.2, 0.5, 0.9))
    assert [each.text for each in runs.labels] == ["running"]


def test_without_evidence_a_word_has_the_moment_that_was_looked_at_most() -> None:
    maps = {"temporal": [None, [0.9, 0.1], [0.5, 0.5]], "spread": [False, False, True], "evidence": None}
    attention = Attention.model_validate({**ATTENTION, **maps})
    assert [word.start for word in attention.by_word] == [None, 0.0, None]


def test_progress_is_told_until_the_end_and_a_job_asks_its_own_client() -> None:
    script = Script(accepted(), job(), job("running", progress=0.5), job("succeeded"), job("canceled"))
    told: list[tuple[str, float]] = []
    with script.client() as client:
        submitted = client.submit(b"a video")
        ended = submitted.wait(progress=lambda job: told.append((job.state, job.progress)))
        assert told == [("queued", 0.0), ("running", 0.5), ("succeeded", 0.0)]
        assert ended.cancel().state == "canceled"


def test_address_and_key_are_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_URL", "http://elsewhere:9")
    monkeypatch.setenv("REELWORD_KEY", "rw_1_secret")
    script = Script(job())
    with Client(transport=httpx.MockTransport(script)) as client:
        client.job(JOB)
    assert script.seen[0].url.host == "elsewhere"
    assert script.seen[0].headers["Authorization"] == "Bearer rw_1_secret"


@pytest.mark.parametrize(
    ("status", "kind"),
    [(400, Invalid), (401, NotAllowed), (403, NotAllowed), (404, NotFound), (413, TooLarge), (500, Refused)],
)
def test_refusals_are_told_apart_by_their_kind(status: int, kind: type[Refused]) -> None:
    with Script(problem(status, "so")).client() as client, pytest.raises(Refused) as refused:
        client.job(JOB)
    assert type(refused.value) is kind


def test_a_limit_says_when_there_is_room_again() -> None:
    answer = problem(429, "rate_limited", **{"Retry-After": "7"})
    with Script(answer).client(attempts=1) as client, pytest.raises(RateLimited) as refused:
        client.job(JOB)
    assert refused.value.retry_after == 7.0


def test_everything_else_the_service_has_is_asked_for_by_its_address() -> None:
    script = Script(*(httpx.Response(200, json={}, content=None) for _ in range(6)))
    with script.client() as client:
        client.frame(JOB, 2)
        client.segment_frame(JOB, 1)
        client.clip(JOB, "gif")
        client.poster(JOB, "dog")
        client.captions(JOB, "vtt", karaoke=True)
        client.judge(JOB, "wrong", "a cat")
    paths = [request.url.raw_path.decode().removeprefix(f"/jobs/{JOB}/") for request in script.seen]
    assert paths == [
        "frames/2.jpg",
        "segments/1/frame.jpg",
        "clip.gif",
        "poster.png?word=dog",
        "captions.vtt?karaoke=true",
        "verdicts",
    ]
    assert json.loads(script.seen[-1].content) == {"verdict": "wrong", "correction": "a cat"}


#: The page's own session, what keepers of the service watch, and files in parts, which clients of tus send.
NOT_OF_THE_CLIENT = {
    "signIn", "signOut", "checkLive", "getMetrics", "createFile", "getFile", "appendToFile", "deleteFile",
}  # fmt: skip
EVERYTHING: tuple[Callable[[Client], object], ...] = (
    lambda client: client.submit(b"a video"),
    lambda client: client.job(JOB),
    lambda client: list(client.events(JOB)),
    lambda client: client.recaption(JOB),
    lambda client: client.cancel(JOB),
    lambda client: list(client.jobs()),
    lambda client: client.search("a dog"),
    lambda client: client.batch([b"a video"]),
    lambda client: client.get_batch(JOB),
    lambda client: client.cancel_batch(JOB),
    lambda client: list(client.batch_results(JOB)),
    lambda client: client.is_ready(),
    lambda client: client.access(),
    lambda client: client.models(),
    lambda client: client.attention(JOB),
    lambda client: client.attention_png(JOB),
    lambda client: client.segment_attention(JOB, 0),
    lambda client: client.captions(JOB),
    lambda client: client.frame(JOB, 0),
    lambda client: client.segment_frame(JOB, 0),
    lambda client: client.video(JOB),
    lambda client: client.clip(JOB),
    lambda client: client.poster(JOB),
    lambda client: client.judge(JOB, "right"),
    lambda client: client.verdicts(),
    lambda client: client.deliveries(JOB),
    lambda client: client.test_webhook("https://example.org/hook"),
)


def test_each_operation_of_the_service_has_its_method() -> None:
    """By the requests that the methods send, and the service's own description."""
    description = create_app(Settings(redis_url="redis://127.0.0.1")).openapi()
    operations = {
        (method.upper(), re.sub(r"\{\w+\}", "[^/]+", path)): operation["operationId"]
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    }
    asked = set[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.update(
            name
            for (method, path), name in operations.items()
            if method == request.method and re.fullmatch(path, request.url.path)
        )
        raise httpx.ConnectError("gone")

    with Client("http://service", attempts=1, transport=httpx.MockTransport(answer)) as client:
        for ask in EVERYTHING:
            with suppress(Unreachable):
                ask(client)
    assert asked == set(operations.values()) - NOT_OF_THE_CLIENT
    query = {
        each["name"] for each in description["paths"]["/jobs"]["get"]["parameters"] if each["in"] == "query"
    }
    assert set(Filters.__annotations__) == query - {"cursor"}


def test_filters_are_states_and_times() -> None:
    script = Script(httpx.Response(200, json={"jobs": []}))
    with script.client() as client:
        since = datetime(2026, 11, 29, 9, tzinfo=UTC)
        assert list(client.jobs(state=["queued", "running"], created_after=since)) == []
    query = script.seen[0].url.params
    assert (query["state"], query["created_after"]) == ("queued,running", "2026-11-29T09:00:00+00:00")


def test_lines_are_read_whole_whatever_stands_in_a_caption() -> None:
    lines = [{"id": JOB, "state": "succeeded", "caption": "a\u2028dog"}, {"id": JOB, "state": "failed"}]
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n" for each in lines)
    with Script(httpx.Response(200, text=text)).client() as client:
        assert [job.caption for job in client.batch_results(JOB)] == ["a\u2028dog", None]


def test_a_webhook_is_verified() -> None:
    secret = "whsec_" + base64.b64encode(bytes(32)).decode()
    body, now = '{"type": "job.succeeded", "data": {"id": "1"}}', datetime.now(UTC)
    headers = {
        "Webhook-Id": "msg_1",
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": Webhook(secret).sign("msg_1", now, body),
    }
    assert verify_webhook(body.encode(), headers, secret).data == {"id": "1"}
    with pytest.raises(WebhookVerificationError):
        verify_webhook(body.replace("1", "2"), headers, secret)


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
    with script.client() as client, pytest.raises(Unreachable, match=r"make serve.*REELWORD_URL"):
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
    assert raised.value.job.error.code == raised.value.code == "no_frames"
    assert raised.value.hint == "Send another."


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
