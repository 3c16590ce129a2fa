"""Webhooks from the end of a job to a receiver on this machine, through a live API and a real Redis."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from standardwebhooks import Webhook, WebhookVerificationError
from structlog.testing import capture_logs
from tenacity.wait import wait_fixed

from app.access.keys import make_key
from app.errors import EngineCrashed, QueueUnavailable
from app.fetching.addresses import AllowedHosts
from app.jobs.blobs import Blobs
from app.jobs.job import Submission
from app.jobs.job_store import Claim, Jobs
from app.jobs.keeping.kept_segments import SegmentFolder
from app.jobs.options import CaptionOptions
from app.settings import Settings
from app.webhooks import deliverer
from app.webhooks.deliverer import DAY, Deliverer, Schedule
from app.webhooks.delivery_store import script_of
from app.webhooks.sender import Sender, read_retry_after
from tests.app.api_process import api_process
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker
from tests.app.webhooks.receiver import OLD_SECRET, SECRET, Reply, receiving
from tests.app.workers import eventually

FAST = Schedule(attempts=4, wait=wait_fixed(0.05))


@pytest.fixture
def signing(settings: Settings) -> Settings:
    return settings.model_copy(
        update={
            "webhook_secrets": (SECRET, OLD_SECRET),
            "webhook_hosts": ("127.0.0.1",),
            "max_backlog": 100,
        }
    )


@pytest.fixture
def hooked(signing: Settings) -> Iterator[LiveApi]:
    with live_api(signing) as api:
        api.service.webhooks.schedule = FAST
        yield api


@pytest.fixture
def taker(hooked: LiveApi, jobs: Jobs) -> ScriptedWorker:
    return ScriptedWorker(jobs, hooked.service.blobs)


def submit(jobs: Jobs, webhook: str | None, **told: Any) -> str:
    job_id = uuid.uuid4().hex
    submission = Submission(webhook=webhook, **told)
    jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}", filename="clip.mp4", submission=submission)
    return job_id


def settled(api: LiveApi, job_id: str, state: str = "delivered") -> dict[str, Any]:
    """A delivery once it is so."""
    deliveries: list[dict[str, Any]] = []

    def is_so() -> bool:
        deliveries[:] = api.client.get(f"/jobs/{job_id}/deliveries").json()["deliveries"]
        return bool(deliveries) and deliveries[0]["state"] == state

    eventually(is_so, 20)
    return deliveries[0]


def test_an_end_is_told_once_and_signed(hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker) -> None:
    with receiving() as receiver:
        job_id = submit(jobs, f"{receiver.url}?order=7", metadata={"order": 7})
        taker.succeed(taker.take())
        delivery = settled(hooked, job_id)
        time.sleep(0.5)
    (received,) = receiver.received
    assert received.path == "/hook?order=7"
    for secret in (SECRET, OLD_SECRET):  # whichever of the two the receiver has
        message = Webhook(secret).verify(received.body, dict(received.headers))
    assert message["type"] == "job.succeeded"
    data = message["data"]
    assert (data["id"], data["state"], data["caption"]) == (job_id, "succeeded", "a dog runs")
    assert (data["metadata"], data["filename"], data["error"]) == ({"order": 7}, "clip.mp4", None)
    assert message["timestamp"] == data["ended_at"]
    assert receiver.ids == [delivery["webhook_id"]] == [f"msg_{job_id}"]
    assert (delivery["type"], delivery["host"], delivery["next_attempt_at"]) == (
        "job.succeeded", "127.0.0.1", None,
    )  # fmt: skip
    (attempt,) = delivery["attempts"]
    assert (attempt["number"], attempt["status"], attempt["error"]) == (1, 204, None)
    assert jobs.server.xlen(jobs.keys.ended) == 0


def test_failures_and_cancellations_are_told_too(hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker) -> None:
    with receiving() as receiver:
        failed, canceled = submit(jobs, receiver.url), submit(jobs, receiver.url)
        jobs.fail(taker.take(), EngineCrashed("The video killed the engine."))
        hooked.client.delete(f"/jobs/{canceled}")
        settled(hooked, failed)
        settled(hooked, canceled)
    messages = {got.message["data"]["id"]: got.message for got in receiver.received}
    assert messages[failed]["type"] == "job.failed"
    assert messages[failed]["data"]["error"]["code"] == "engine_crashed"
    assert messages[canceled]["type"] == "job.canceled"
    assert len(receiver.received) == 2


def test_what_fails_is_tried_again_with_the_same_id(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    with receiving(Reply(500), Reply(302, {"location": "http://127.0.0.1:1/"})) as receiver:
        job_id = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        delivery = settled(hooked, job_id)
    assert [attempt["status"] for attempt in delivery["attempts"]] == [500, 302, 204]
    assert [attempt["number"] for attempt in delivery["attempts"]] == [1, 2, 3]
    assert "redirects" in delivery["attempts"][1]["error"]
    assert len(set(receiver.ids)) == 1
    assert len({got.body for got in receiver.received}) == 1


def test_a_receiver_that_does_not_answer_is_given_up_and_tried_again(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.webhooks.sender.SECONDS", 2.0)
    with receiving(Reply(seconds=4.0)) as receiver:
        job_id = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        delivery = settled(hooked, job_id)
    first, second = delivery["attempts"]
    assert (first["status"], second["status"]) == (None, 204)
    assert "no answer within" in first["error"]


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nX: y\r\n" * 3000, b"\x16\x03\x01" * 9]
)
def test_a_receiver_that_says_half_a_thing_is_given_up(
    monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    """Also one that takes no connection from its row: none holds a place for longer than an attempt."""
    monkeypatch.setattr("app.webhooks.sender.SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as listener, ExitStack() as held:

        def say() -> None:
            held.enter_context(connection := listener.accept()[0])
            connection.sendall(answer)

        if answer:
            threading.Thread(target=say, daemon=True).start()
        sender = Sender([SECRET], AllowedHosts(["127.0.0.1"]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        result = asyncio.run(sender.send(url, "msg_1", "{}"))
    assert not result.is_delivered
    assert result.seconds < 10


def test_a_key_s_own_secret_signs_its_messages_alone(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    """No other key's receiver can make a message that this one takes for the service's."""
    own = "whsec_" + "b3duIG9u" * 5
    key, _ = make_key("ada", webhook_secret=own)
    hooked.service.keys.store.add(key)
    with receiving() as receiver:
        for owner in (key.id, "another"):
            job_id = submit(jobs, receiver.url, owner=owner)
            taker.succeed(taker.take())
            settled(hooked, job_id)
        hers, other = receiver.received
    Webhook(own).verify(hers.body, dict(hers.headers))
    for message, wrong in ((hers, SECRET), (other, own)):
        with pytest.raises(WebhookVerificationError):
            Webhook(wrong).verify(message.body, dict(message.headers))


def test_many_messages_of_one_owner_delay_no_other_s(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    """Also where hers are due before his, and their receiver takes its time."""
    slow = [Reply(500, seconds=3.0)] * 100
    with receiving(*slow) as hers, receiving() as his:
        for _ in range(12):
            jobs.cancel(submit(jobs, hers.url, owner="ada"))
        eventually(lambda: bool(hers.received), 10)
        began = time.monotonic()
        job_id = submit(jobs, his.url, owner="bob")
        jobs.cancel(job_id)
        settled(hooked, job_id)
        assert time.monotonic() - began < 3
        assert len(hers.received) <= 4 + 4


def test_more_messages_of_one_owner_than_are_looked_at_hide_no_other_s(jobs: Jobs) -> None:
    ids = [f"ada{number}" for number in range(5001)] + ["bob"]
    owners: dict[Any, Any] = {job_id: job_id[:3] for job_id in ids}
    with jobs.server.pipeline() as pipe:
        pipe.zadd(jobs.keys.deliveries, {job_id: place for place, job_id in enumerate(ids)})
        pipe.hset(f"{jobs.keys.index}:owners", mapping=owners)
        for job_id in ids:
            pipe.hset(
                jobs.keys.delivery(job_id), mapping={"id": "msg", "url": "https://a.example/", "body": "{}"}
            )
        pipe.execute()
    begin = jobs.server.register_script(script_of("begin"))
    keys, prefix = [jobs.keys.deliveries, f"{jobs.keys.index}:owners"], jobs.keys.delivery("")
    first = begin(keys=keys, args=[prefix, 60_000, 16, "{}", 4])
    assert [row[0] for row in first] == ["ada0", "ada1", "ada2", "ada3"]
    second = begin(keys=keys, args=[prefix, 60_000, 12, '{"ada": 4}', 4])
    assert [row[0] for row in second] == ["bob"]


ALL = ["started", "segment", "ended"]


def begun_film(jobs: Jobs, taker: ScriptedWorker, segments: int) -> Claim:
    """A film's job whose worker has told of its segments, one by one."""
    claim = taker.take()
    folder = SegmentFolder(taker.blobs, claim.results, "same")
    for number in range(segments):
        told = {
            "start": number,
            "end": number + 1.0,
            "representative": number + 0.5,
            "caption": f"shot {number}",
            "captions": [],
        }
        folder.hold(told, {})
        folder.close()
        jobs.beat(claim, "caption", 0.01 * number, {"segments": vars(folder.kept)})
    return claim


def test_events_are_told_in_their_order_as_the_filter_says(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    """Also where an attempt fails; each message has an id of its own, the same in all its attempts."""
    with receiving(Reply(500), Reply(), Reply(503)) as receiver:
        job_id = submit(jobs, receiver.url, webhook_events_filter=ALL)
        segments_alone = submit(jobs, f"{receiver.url}/2", webhook_events_filter=["segment"])
        taker.succeed(begun_film(jobs, taker, 3))
        eventually(lambda: len(receiver.received) == 7)
        taker.succeed(begun_film(jobs, taker, 2))
        eventually(lambda: len(receiver.received) == 9)
        deliveries = hooked.client.get(f"/jobs/{job_id}/deliveries").json()["deliveries"]
        time.sleep(0.5)
    told = [received.message for received in receiver.received]
    assert [each["type"] for each in told[:7]] == [
        *["job.started"] * 2, *["job.segment"] * 4, "job.succeeded",
    ]  # fmt: skip
    assert [each["type"] for each in told[7:]] == ["job.segment"] * 2
    assert {each["data"]["id"] for each in told[7:]} == {segments_alone}
    assert told[0]["data"]["state"] == "running"
    assert told[0]["timestamp"] == told[0]["data"]["started_at"]
    shots = [each["data"]["segment"] for each in told[2:6]]
    assert [(shot["number"], shot["caption"]) for shot in shots] == [
        (0, "shot 0"), (0, "shot 0"), (1, "shot 1"), (2, "shot 2"),
    ]  # fmt: skip
    assert (told[6]["data"]["caption"], told[6]["data"]["segment"]) == ("a dog runs", None)
    ids = receiver.ids[:7]
    assert (ids[0], ids[2]) == (ids[1], ids[3])
    assert [each["webhook_id"] for each in deliveries] == list(dict.fromkeys(ids))
    assert [len(each["attempts"]) for each in deliveries] == [2, 2, 1, 1, 1]
    assert {each["state"] for each in deliveries} == {"delivered"}
    for received in receiver.received:
        Webhook(SECRET).verify(received.body, dict(received.headers))


def test_a_receiver_that_is_away_is_told_of_the_end_all_the_same(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    """Segments that wait behind a message which failed are dropped: the end waits for no attempt at each."""
    away = [Reply(500)] * deliverer.ATTEMPTS_BEFORE_THE_END
    with receiving(Reply(500, seconds=2.0), *away[1:]) as receiver:
        job_id = submit(jobs, receiver.url, webhook_events_filter=ALL)
        taker.succeed(begun_film(jobs, taker, 20))  # while the receiver thinks about the first attempt
        eventually(lambda: len(receiver.received) > len(away))
        last = hooked.client.get(f"/jobs/{job_id}/deliveries").json()["deliveries"][-1]
        assert receiver.received[-1].message["type"] == last["type"] == "job.succeeded"
        time.sleep(0.5)
        assert len(receiver.received) == len(away) + 1


def test_messages_wait_for_those_before_them_whichever_process_reads_first(jobs: Jobs) -> None:
    schedule, begin, settle = (
        jobs.server.register_script(script_of(name)) for name in ("schedule", "begin", "settle")
    )
    keys, delivery = jobs.keys, jobs.keys.delivery("film")
    sent: list[int] = []
    for number in (3, 1, 2, 2):
        entry = jobs.server.xadd(keys.ended, {"job": "film", "told": number})
        fields = json.dumps(
            ["id", f"msg_{number}", "type", "job.segment", "url", "https://a.example/", "body", "{}"]
        )
        args = ["webhooks", entry, "film", number, fields, 60]
        schedule(keys=[keys.ended, keys.deliveries, delivery], args=args)
        assert bool(jobs.server.zcard(keys.deliveries)) == (number != 3 or bool(sent))
        sent.append(number)
    for number in (1, 2, 3):
        names = [keys.deliveries, f"{keys.index}:owners"]
        ((_, attempt, message_id, *_),) = begin(keys=names, args=[keys.delivery(""), 60_000, 9, "{}", 4])
        assert message_id == f"msg_{number}"
        names = [keys.deliveries, delivery, keys.delivery_attempts("film"), keys.counts]
        settle(keys=names, args=["film", attempt, "delivered", 0, "{}", 50, 60])
    assert jobs.server.zcard(keys.deliveries) == 0


def test_the_filter_comes_with_a_form_and_with_json(hooked: LiveApi) -> None:
    url = "https://example.org/hook"
    form = send(hooked, webhook=url, webhook_events_filter="started, ended").json()["id"]
    fields = {"url": "https://example.org/clip.mp4", "webhook": url, "webhook_events_filter": ["segment"]}
    sent = hooked.client.post("/caption", json=fields).json()["id"]
    for job_id, events in ((form, ["started", "ended"]), (sent, ["segment"])):
        job = hooked.service.jobs.get(job_id)
        assert job is not None
        assert job.submission.webhook_events_filter == events
    for odd in ("", "ended,", "completed", "started;ended"):
        assert_problem(send(hooked, webhook=url, webhook_events_filter=odd), 422, "invalid_option")


def test_retry_after_is_honoured(hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker) -> None:
    with receiving(Reply(429, {"retry-after": "2"})) as receiver:
        job_id = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        settled(hooked, job_id)
    first, second = receiver.received
    assert second.at - first.at >= 2.0


def test_gone_ends_it_and_so_does_the_last_attempt(
    hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker
) -> None:
    with receiving(Reply(410)) as gone, receiving(*[Reply(503)] * 9) as broken:
        ids = [submit(jobs, gone.url), submit(jobs, broken.url)]
        for _ in ids:
            taker.succeed(taker.take())
        deliveries = [settled(hooked, job_id, "failed") for job_id in ids]
        time.sleep(0.3)
        assert (len(gone.received), len(broken.received)) == (1, FAST.attempts)
    assert [len(delivery["attempts"]) for delivery in deliveries] == [1, FAST.attempts]
    assert jobs.server.zcard(jobs.keys.deliveries) == 0
    assert jobs.server.ttl(jobs.keys.delivery(ids[0])) > 0
    assert jobs.server.ttl(jobs.keys.delivery_attempts(ids[0])) > 0


def test_private_addresses_are_refused_unless_they_are_named(signing: Settings, jobs: Jobs) -> None:
    with (
        receiving() as receiver,
        live_api(signing.model_copy(update={"webhook_hosts": ()})) as api,
    ):
        taker = ScriptedWorker(jobs, api.service.blobs)
        urls = [receiver.url, receiver.url.replace("127.0.0.1", "localhost"), "http://169.254.169.254/"]
        ids = [submit(jobs, url) for url in urls]
        for _ in ids:
            taker.succeed(taker.take())
        for job_id in ids:
            eventually(partial(is_noted, jobs, job_id))
            attempt = settled(api, job_id, "pending")["attempts"][0]
            assert "private network" in attempt["error"]
        errors = {
            api.client.post("/webhooks/test", json={"url": url}).json()["error"]
            for url in (*urls, "http://no-such-name.invalid/hook")
        }
        assert errors == {"not sent: the host is not there, or lies in a private network"}
        tried = api.client.post("/webhooks/test", json={"url": receiver.url}).json()
        assert (tried["delivered"], tried["status"]) == (False, None)
        assert receiver.received == []


def test_jobs_without_a_webhook_leave_nothing(hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker) -> None:
    job_id = submit(jobs, None)
    taker.succeed(taker.take())
    eventually(lambda: jobs.server.xlen(jobs.keys.ended) == 0)
    assert hooked.client.get(f"/jobs/{job_id}/deliveries").json() == {"deliveries": []}
    assert not jobs.server.exists(jobs.keys.delivery(job_id))
    assert_problem(hooked.client.get(f"/jobs/{'0' * 32}/deliveries"), 404, "unknown_job")


def test_a_webhook_is_tried_out(hooked: LiveApi) -> None:
    with receiving(Reply(), Reply(500)) as receiver:
        tried = hooked.client.post("/webhooks/test", json={"url": receiver.url}).json()
        assert (tried["delivered"], tried["status"], tried["error"]) == (True, 204, None)
        again = hooked.client.post("/webhooks/test", json={"url": receiver.url}).json()
        assert (again["delivered"], again["status"]) == (False, 500)
    message = Webhook(SECRET).verify(receiver.received[0].body, dict(receiver.received[0].headers))
    assert message["type"] == "webhook.test"
    assert receiver.ids == [tried["webhook_id"], again["webhook_id"]]
    for url in ("ftp://x/", "", None, 7):
        assert_problem(hooked.client.post("/webhooks/test", json={"url": url}), 422, "invalid_request")


def test_without_a_secret_webhooks_are_refused_and_kept_until_there_is_one(
    settings: Settings, signing: Settings, jobs: Jobs
) -> None:
    with receiving() as receiver:
        with live_api(settings) as api:
            assert_problem(send(api, webhook=receiver.url), 422, "webhooks_off")
            assert api.uploads == []
            assert_problem(api.client.post("/webhooks/test", json={"url": receiver.url}), 422, "webhooks_off")
            job_id = submit(jobs, receiver.url)  # accepted while there was a secret
            taker = ScriptedWorker(jobs, api.service.blobs)
            taker.succeed(taker.take())
            assert settled(api, job_id, "pending")["attempts"] == []
        with live_api(signing) as api:
            settled(api, job_id)
        assert receiver.ids == [f"msg_{job_id}"]


def test_a_webhook_comes_with_the_form(hooked: LiveApi, taker: ScriptedWorker) -> None:
    with receiving() as receiver:
        location = send(hooked, webhook=receiver.url).headers["location"]
        assert hooked.client.get(location).json()["webhook"] == "127.0.0.1"
        taker.succeed(taker.take())
        settled(hooked, location.rpartition("/")[2])
        assert len(receiver.received) == 1


def test_two_processes_tell_each_end_once(signing: Settings, jobs: Jobs) -> None:
    taker = ScriptedWorker(jobs, Blobs(signing.blob_url, signing.staging))
    with receiving() as receiver, api_process(signing) as one, api_process(signing) as two:
        assert one.url != two.url
        ids = [submit(jobs, receiver.url) for _ in range(40)]
        for _ in ids:
            taker.succeed(taker.take())
        eventually(lambda: len(receiver.received) >= len(ids), 60)
        time.sleep(1.0)
        assert Counter(receiver.ids) == Counter(f"msg_{job_id}" for job_id in ids)


def test_a_restart_of_the_api_forgets_no_delivery(signing: Settings, jobs: Jobs) -> None:
    """Killed while the receiver thinks, after a failed attempt, and while a job ends."""
    taker = ScriptedWorker(jobs, Blobs(signing.blob_url, signing.staging))
    with receiving(Reply(500), Reply(seconds=5.0)) as receiver, api_process(signing) as api:
        tried = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        eventually(lambda: is_noted(jobs, tried))
        thinking = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        eventually(lambda: len(receiver.received) == 2)
        api.stop(signal.SIGKILL)
        ended_meanwhile = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        for job_id in (tried, thinking):  # the pause after the failure, and the lease of the killed one
            jobs.server.zadd(jobs.keys.deliveries, {job_id: 0})
        api.start()
        eventually(lambda: jobs.server.zcard(jobs.keys.deliveries) == 0 and is_noted(jobs, ended_meanwhile))
        counts = Counter(receiver.ids)
    assert counts == {f"msg_{tried}": 2, f"msg_{thinking}": 2, f"msg_{ended_meanwhile}": 1}


def is_noted(jobs: Jobs, job_id: str) -> bool:
    return bool(jobs.server.llen(jobs.keys.delivery_attempts(job_id)))


# ---- when ----


def test_what_keeps_it_from_delivering_is_logged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = [QueueUnavailable("no")] * 3 + [ValueError("odd")] * 3 + [QueueUnavailable("no")]
    monkeypatch.setattr(deliverer, "AWAY_SECONDS", 0.0)
    store = Mock(events=AsyncMock(side_effect=[*errors, asyncio.CancelledError()]))
    with capture_logs() as lines, pytest.raises(asyncio.CancelledError):
        asyncio.run(Deliverer(store, Mock(), Mock(), None, Mock())._run())
    assert [line["log_level"] for line in lines] == ["warning", "error", "warning"]


def test_attempts_are_made_over_about_a_day() -> None:
    schedule = Schedule()
    pauses = [schedule.pause_after(attempt, None) for attempt in range(1, schedule.attempts + 1)]
    assert pauses[-1] is None
    finite = [pause for pause in pauses if pause is not None]
    assert finite == sorted(finite[:7]) + finite[7:]
    assert 5 <= finite[0] <= 7
    assert 0.9 * DAY < sum(finite) < 1.2 * DAY
    assert (schedule.pause_after(1, 3600.0), schedule.pause_after(1, 10 * DAY)) == (3600.0, DAY)


def test_retry_after_is_a_number_or_a_date() -> None:
    assert read_retry_after("120", now=0.0) == 120.0
    assert read_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=20.0) == 40.0
    assert read_retry_after("Thu, 01 Jan 1970 00:01:00 GMT", now=90.0) == 0.0
    assert read_retry_after("soon", now=0.0) is None


def test_a_delivery_that_is_over_is_noted_once(hooked: LiveApi, jobs: Jobs, taker: ScriptedWorker) -> None:
    """A process that was frozen in an attempt comes back when another one has made the next."""
    with receiving() as receiver:
        job_id = submit(jobs, receiver.url)
        taker.succeed(taker.take())
        delivery = settled(hooked, job_id)
    script = jobs.server.register_script(script_of("settle"))
    keys = [jobs.keys.deliveries, jobs.keys.delivery(job_id), jobs.keys.delivery_attempts(job_id)]
    assert script(keys=keys, args=[job_id, 1, "pending", 0, "{}", 50, 60]) == 0
    assert settled(hooked, job_id) == delivery
    jobs.server.hset(jobs.keys.delivery(job_id), "state", "of a later version")
    assert_problem(hooked.client.get(f"/jobs/{job_id}/deliveries"), 409, "record_unreadable")
