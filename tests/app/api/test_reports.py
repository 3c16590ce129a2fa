"""What public reports say of clients, sent as they send it; docs/results/wild.md lists them."""

from __future__ import annotations

import json
import socket

import pytest
import redis

from app.jobs.job import GROUP, Keys
from tests.app.live_api import LIMIT, LiveApi, assert_problem, finished, send
from tests.app.scripted_worker import ScriptedWorker

HEAD = "POST /caption HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nExpect: 100-continue\r\n"


def form(boundary: str) -> bytes:
    part = 'Content-Disposition: form-data; name="video"; filename="a.mp4"'
    return f"--{boundary}\r\n{part}\r\n\r\na video\r\n--{boundary}--\r\n".encode()


@pytest.mark.parametrize("boundary", ["Boundary*1", "a'b_c.d", "----=_Part_1", "x" * 70, '"a b:c?"'])
def test_a_boundary_of_any_letters_is_taken(api: LiveApi, boundary: str) -> None:
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    assert api.client.post("/caption", content=form(boundary.strip('"')), headers=headers).status_code == 202


def test_bytes_of_a_file_that_call_themselves_a_form_are_refused(api: LiveApi) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=A63774C3"}
    answer = api.client.post("/caption", content=b"\x00\x00\x00\x18ftypmp42" * 100, headers=headers)
    assert "cut off" in assert_problem(answer, 400, "malformed_form")["detail"]
    assert api.staged == []


def test_who_asks_first_is_told_to_go_on_or_refused_before_the_body(api: LiveApi) -> None:
    for size, begins in ((7, b"HTTP/1.1 100 "), (LIMIT + 1, b"HTTP/1.1 413 ")):
        with socket.create_connection(("127.0.0.1", api.port), timeout=20) as client:
            client.sendall(f"{HEAD}Content-Type: video/mp4\r\nContent-Length: {size}\r\n\r\n".encode())
            assert client.recv(65536).startswith(begins)
            if size == 7:
                client.sendall(b"a video")
                assert client.recv(65536).startswith(b"HTTP/1.1 202 ")


def test_a_stream_that_has_ended_is_not_opened_again_and_again(api: LiveApi, worker: ScriptedWorker) -> None:
    location = finished(api, worker)
    text = api.client.get(f"{location}/events").text
    last = [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("id:")][-1]
    again = api.client.get(f"{location}/events", headers={"Last-Event-ID": last})
    assert again.status_code == api.client.get(f"{location}/events?after={last}").status_code == 204


def test_jobs_go_on_where_redis_has_lost_the_queue_s_group(
    api: LiveApi, worker: ScriptedWorker, server: redis.Redis, keys: Keys
) -> None:
    for stream in list(server.scan_iter(f"{keys.namespace}:*", _type="stream")):
        server.delete(stream)
    location = send(api).headers["location"]
    worker.succeed_all()  # finds no group, and makes one
    worker.succeed(worker.take())
    assert api.client.get(location).json()["state"] == "succeeded"


def test_a_job_that_is_over_is_not_done_again_where_the_group_stands_before_it(
    api: LiveApi, worker: ScriptedWorker, server: redis.Redis, keys: Keys
) -> None:
    """As a group does that a restart from an append-only file has set back."""
    finished(api, worker)
    server.xgroup_setid(keys.stream("normal"), GROUP, "0")
    location = send(api).headers["location"]
    assert worker.take().job.id == json.loads(api.client.get(location).text)["id"]
