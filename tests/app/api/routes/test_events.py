"""A job's events over a socket: as they happen, again behind a known one, and where some are gone."""

from __future__ import annotations

import json
import signal
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from httpx_sse import ServerSentEvent, connect_sse

from app.api.dependencies import READERS
from app.errors import EngineCrashed
from app.jobs.blobs import Blobs
from app.jobs.job_store import Claim, Jobs
from app.jobs.options import CaptionOptions
from app.settings import Settings
from tests.app.api_process import api_process
from tests.app.live_api import LiveApi, assert_problem, finished, live_api, send
from tests.app.scripted_worker import ScriptedWorker


@contextmanager
def following(api: LiveApi, location: str, **query: str) -> Iterator[Iterator[ServerSentEvent]]:
    with connect_sse(api.client, "GET", f"{location}/events", params=query) as source:
        source.response.raise_for_status()
        yield source.iter_sse()


def told(api: LiveApi, location: str, **query: str) -> list[ServerSentEvent]:
    """All events to the end."""
    with following(api, location, **query) as events:
        return list(events)


def kinds(events: list[ServerSentEvent]) -> list[str]:
    return [event.event for event in events]


def write_segments(api: LiveApi, claim: Claim, count: int) -> dict[str, Any]:
    """What a worker's record says once so many segments of a film are done."""
    folder = claim.results
    segments = [
        {
            "start": float(n), "end": n + 1.0, "representative": n + 0.5, "caption": f"segment {n}",
            "captions": [{"text": f"segment {n}", "score": -0.1, "words": []}],
        }
        for n in range(count)
    ]  # fmt: skip
    for part in range(0, count, 64):
        text = json.dumps({"basis": "b", "segments": segments[part : part + 64]})
        api.service.blobs.write(f"{folder}/segments/parts/{part // 64}.json", text.encode())
    return {"segments": {"folder": folder, "done": count}}


def test_a_job_is_followed_to_its_end(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    with following(api, location) as events:
        waits = next(events)
        first = waits.json()
        assert waits.event == "state"
        assert (first["state"], first["place"], first["workers"], first["attempt"]) == ("queued", 1, 0, 0)
        claim = worker.take()
        starts = next(events).json()
        assert (starts["state"], starts["stage"], starts["place"], starts["attempt"]) == (
            "running", "decode", None, 1,
        )  # fmt: skip
        jobs.beat(claim, "extract", 0.5)
        moves = next(events).json()
        assert (moves["stage"], moves["progress"], moves["text"]) == ("extract", 0.5, None)
        jobs.beat(claim, "extract", 0.501)  # nothing that is worth a word
        jobs.beat(claim, "extract", 0.502, text="a dog")
        assert next(events).json()["text"] == "a dog"
        worker.succeed(claim)
        end = next(events)
        assert end.event == "end"
        assert end.json() == {
            "id": claim.job.id, "state": "succeeded", "caption": "a dog runs", "error": None,
        }  # fmt: skip
        assert list(events) == []  # the server closes


@pytest.mark.parametrize("path", ["/events", "", "/attention.png"])
def test_a_client_of_http_1_0_that_closes_its_side_gets_no_chunks(
    api: LiveApi, worker: ScriptedWorker, path: str
) -> None:
    location = finished(api, worker)
    with socket.create_connection(("127.0.0.1", api.port), timeout=20) as client:
        client.sendall(f"GET {location}{path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        client.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(partial(client.recv, 65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"\r\ntransfer-encoding" not in head.lower()
    assert head.lower().count(b"\r\nconnection:") == head.lower().count(b"\r\nconnection: close") == 1
    assert body.endswith(b"\n\n" if path == "/events" else api.client.get(location + path).content[-20:])


def test_a_failure_and_a_cancellation_are_ends(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    failed = send(api).headers["location"]
    jobs.fail(worker.take(), EngineCrashed("The video killed the engine."))
    (end,) = told(api, failed)
    assert (end.json()["state"], end.json()["error"]["code"]) == ("failed", "engine_crashed")
    canceled = send(api).headers["location"]
    with following(api, canceled) as events:
        next(events)
        api.client.delete(canceled)
        assert next(events).json()["state"] == "canceled"
    running = send(api).headers["location"]
    with following(api, running) as events:
        next(events)
        claim = worker.take()
        assert next(events).json()["cancel_requested"] is False
        api.client.delete(running)
        assert next(events).json()["cancel_requested"] is True
        jobs.stop(claim)
        assert next(events).json()["state"] == "canceled"


def test_whoever_comes_back_is_told_what_came_behind(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker
) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    for progress in (0.1, 0.2, 0.3):
        jobs.beat(claim, "decode", progress)
    worker.succeed(claim)
    everything = told(api, location, after="0")
    assert kinds(everything) == ["state"] * 5 + ["end"]
    assert len({event.id for event in everything}) == 6
    for number, event in enumerate(everything[:-1]):
        again = told(api, location, after=event.id)
        assert [each.id for each in again] == [each.id for each in everything[number + 1 :]]
    answer = api.client.get(f"{location}/events", headers={"Last-Event-ID": everything[-1].id})
    assert answer.status_code == 204  # a browser does not come again
    assert kinds(told(api, location)) == ["end"]


def test_segments_are_told_once_each_wherever_a_connection_breaks(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker
) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    with following(api, location) as events:
        next(events)
        jobs.beat(claim, "caption", 0.1, write_segments(api, claim, 2))
        first = [next(events) for _ in range(3)]
    assert kinds(first) == ["segment", "segment", "state"]
    assert [event.json()["number"] for event in first[:2]] == [0, 1]
    assert first[1].json()["caption"] == "segment 1"
    jobs.beat(claim, "caption", 0.2, write_segments(api, claim, 70))
    jobs.succeed(claim, {"caption": "a film", **write_segments(api, claim, 71)})
    whole = told(api, location, after="0")
    numbers = [event.json()["number"] for event in whole if event.event == "segment"]
    assert numbers == list(range(71))
    for number in (0, 1, 2, 40, 68, 69, 70, 71):
        last_seen = whole[number]
        rest = told(api, location, after=last_seen.id)
        assert [each.id for each in rest] == [each.id for each in whole[number + 1 :]]
    fresh = told(api, location)
    assert kinds(fresh) == ["segment"] * 71 + ["end"]
    again = told(api, location, after=fresh[30].id)
    assert [each.json().get("number") for each in again] == [*range(31, 71), None]


def test_what_is_gone_is_said_to_be(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    first = told_now(api, location)
    jobs.server.xtrim(jobs.keys.events(claim.job.id), maxlen=0, approximate=False)
    jobs.beat(claim, "extract", 0.6)
    with following(api, location, after=first.id) as events:
        lost, state = next(events), next(events)
    assert (lost.event, lost.id) == ("lost", first.id)
    assert (state.event, state.json()["progress"]) == ("state", 0.6)


def test_a_long_history_is_bounded(api: LiveApi, jobs: Jobs, worker: ScriptedWorker) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    first = told_now(api, location)
    for number in range(450):  # a film of many segments changes its stage as often
        jobs.beat(claim, ("extract", "caption")[number % 2], 0.0)
    assert jobs.server.xlen(jobs.keys.events(claim.job.id)) <= 400
    with following(api, location, after=first.id) as events:
        assert next(events).event == "lost"


def told_now(api: LiveApi, location: str) -> ServerSentEvent:
    with following(api, location) as events:
        return next(events)


def test_the_place_in_the_queue_is_told_as_it_moves(api: LiveApi, worker: ScriptedWorker) -> None:
    first, second = (send(api).headers["location"] for _ in range(2))
    with following(api, second) as events:
        assert next(events).json()["place"] == 2
        api.client.delete(first)
        moved = next(events)
        assert (moved.json()["place"], moved.json()["state"]) == (1, "queued")
        worker.advertise("stats")
        assert next(events).json()["workers"] == 1
    assert told_now(api, second).id == moved.id  # a place is no change of the job's


def test_an_end_without_a_word_is_found(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker of an older version, whose scripts tell nobody."""
    monkeypatch.setattr("app.api.following.event_reader.RECORDS_SECONDS", 0.1)
    with live_api(api.service.settings) as other:
        location = send(other).headers["location"]
        claim = worker.take()
        with following(other, location) as events:
            next(events)
            key = jobs.keys.events(claim.job.id)
            jobs.server.rename(key, f"{key}:aside")
            worker.succeed(claim)
            jobs.server.delete(key)
            assert next(events).event == "end"


def test_many_follow_with_one_connection_and_no_thread(
    api: LiveApi, jobs: Jobs, worker: ScriptedWorker
) -> None:
    location = send(api).headers["location"]
    claim = worker.take()
    threads, clients = threading.active_count(), jobs.server.info("clients")["connected_clients"]
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(base_url=api.client.base_url, limits=limits, timeout=30) as many:
        requests = [many.build_request("GET", f"{location}/events") for _ in range(120)]
        with ThreadPoolExecutor(40) as pool:
            responses = list(pool.map(lambda request: many.send(request, stream=True), requests))
        assert [response.status_code for response in responses] == [200] * 120
        assert jobs.server.info("clients")["connected_clients"] <= clients + READERS
        worker.succeed(claim)
        with ThreadPoolExecutor(8) as pool:
            texts = list(pool.map(lambda response: response.read().decode(), responses))
    assert threading.active_count() < threads + 60
    assert all(text.count("event: end") == 1 for text in texts)


def test_followers_leave_room_for_others(settings: Settings, jobs: Jobs) -> None:
    with live_api(settings.model_copy(update={"max_connections": 6})) as api:
        location = send(api).headers["location"]
        with httpx.Client(base_url=api.client.base_url, timeout=30) as many:
            streams = [
                many.send(many.build_request("GET", f"{location}/events"), stream=True) for _ in range(3)
            ]
            assert [response.status_code for response in streams] == [200] * 3
            assert_problem(api.client.get(f"{location}/events"), 503, "too_many_followers")
            assert api.client.get(location).status_code == 200
            streams[0].close()
            with following(api, location) as events:
                assert next(events).event == "state"
            for response in streams:
                response.close()


def test_what_is_no_job_or_no_id_is_refused(api: LiveApi, worker: ScriptedWorker) -> None:
    assert_problem(api.client.get(f"/jobs/{'0' * 32}/events"), 404, "unknown_job")
    location = finished(api, worker)
    assert_problem(api.client.get(f"{location}/events", params={"after": "x"}), 422, "invalid_request")
    head = api.client.head(send(api).headers["location"] + "/events")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")


def test_a_restart_of_the_api_loses_no_event(settings: Settings, jobs: Jobs) -> None:
    """The client comes back with the last id that it has seen, as a browser does."""
    with api_process(settings) as api:
        job_id = uuid.uuid4().hex
        jobs.submit(job_id, CaptionOptions(), f"uploads/{job_id}")
        claim = ScriptedWorker(jobs, Blobs(settings.blob_url, settings.staging)).take()
        seen: list[ServerSentEvent] = []
        with httpx.Client(base_url=api.url, timeout=30) as client:
            with connect_sse(client, "GET", f"/jobs/{job_id}/events", params={"after": "0"}) as source:
                events = source.iter_sse()
                seen += [next(events), next(events)]
                began = time.monotonic()
                code = api.stop(signal.SIGTERM)
                assert list(events) == []  # the stream ends as a stream should, without waiting for the job
                assert (code, time.monotonic() - began < 10) == (-signal.SIGTERM, True)
            jobs.beat(claim, "extract", 0.5)
            jobs.succeed(claim, {"caption": "a dog runs"})
            api.start()
            headers = {"Last-Event-ID": seen[-1].id}
            with connect_sse(client, "GET", f"/jobs/{job_id}/events", headers=headers) as source:
                seen += source.iter_sse()
    assert kinds(seen) == ["state"] * 3 + ["end"]
    assert [event.json()["state"] for event in seen] == ["queued", "running", "running", "succeeded"]
    entries: Any = jobs.server.xrange(jobs.keys.events(job_id))
    assert [event.id for event in seen] == [entry for entry, _ in entries]
