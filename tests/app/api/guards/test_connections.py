"""What clients leave undone has an end: raw sockets against a real server, with short times."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import httpx
import psutil
import pytest

from app.api.guards import connections
from app.api.guards.connections import LimitedProtocol
from app.api.receiving.bodies import receive_body
from app.jobs.job import Job
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, live_api, send

SHORT = 0.6
LIMIT = 12
FORM = b"\r\nContent-Type: multipart/form-data; boundary=b\r\n"
VIDEO = b'--b\r\nContent-Disposition: form-data; name="video"; filename="a.mp4"\r\n\r\n'


@pytest.fixture
def api(tmp_path: Path, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveApi]:
    for name in ("HEADER_SECONDS", "LEAVE_SECONDS", "STUCK_SECONDS", "PROBE_SECONDS"):
        monkeypatch.setattr(connections, name, SHORT)
    slowly = partial(receive_body, stall_seconds=SHORT)
    monkeypatch.setattr("app.api.routes.submit.receive_body", slowly)
    settings = Settings(
        data=tmp_path, redis_url=redis_server.url, namespace=tmp_path.name, max_connections=LIMIT,
        min_free_bytes=0, max_upload_bytes=50_000_000,
    )  # fmt: skip
    with live_api(settings) as running:
        yield running


def connect(api: LiveApi, sent: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", api.port), timeout=20)
    client.sendall(sent)
    return client


def rest(client: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    received = b""
    try:
        while data := client.recv(65536):
            received += data
    except ConnectionResetError:
        pass
    return received


def length(size: int) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % size


UNDONE = {
    "nothing": (b"", b""),
    "line breaks": (b"\r\n\r\n", b"408 "),
    "half a line": (b"GET /liv", b"408 "),
    "half of the headers": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", b"408 "),
    "no body": (b"POST /caption HTTP/1.1\r\nHost: localhost" + FORM + length(1000), b"408 "),
    "half a body": (b"POST /caption HTTP/1.1\r\nHost: localhost" + FORM + length(1000) + VIDEO, b"408 "),
    "half a chunk": (
        b"POST /caption HTTP/1.1\r\nHost: localhost" + FORM + b"Transfer-Encoding: chunked\r\n\r\nff\r\n--b",
        b"408 ",
    ),
    "a body that nobody reads": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n" + length(1000), b"200 "),
    "a body of a refused request": (b"POST /caption HTTP/1.1\r\nHost: evil\r\n" + length(1000), b"400 "),
    "half of a second request": (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET /", b"408 "),
}


@pytest.mark.parametrize(("sent", "status"), UNDONE.values(), ids=UNDONE)
def test_what_does_not_come_is_not_waited_for(api: LiveApi, sent: bytes, status: bytes) -> None:
    began = time.monotonic()
    with connect(api, sent) as client:
        answer = rest(client)
    assert SHORT * 0.8 < time.monotonic() - began < 10
    if status:
        assert b"HTTP/1.1 " + status in answer
    else:
        assert answer == b""
    assert api.staged == []


HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
WHOLE_FORM = VIDEO + b"data\r\n--b--"
JSON_BODY = b'{"url": "https://films.example/a.mp4"}'
RAW_POST = b"POST /caption" + HOST + b"Content-Type: video/mp4\r\n"
JSON_POST = (
    b"POST /caption" + HOST + b"Content-Type: application/json\r\n" + length(len(JSON_BODY)) + JSON_BODY
)
WAIT = b"Prefer: wait=2\r\n"
#: What is sent before the client closes its side (nc -N, proxies that pass TCP on), and the statuses.
HALF_CLOSED = {
    "get": (b"GET /models" + HOST + b"\r\n", [b"200"]),
    "get, 1.0": (b"GET /livez HTTP/1.0\r\nHost: localhost\r\n\r\n", [b"200"]),
    "head": (b"HEAD /models" + HOST + b"\r\n", [b"200"]),
    "raw": (RAW_POST + length(4) + b"data", [b"202"]),
    "chunked": (RAW_POST + b"Transfer-Encoding: chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n", [b"202"]),
    "form": (b"POST /caption" + HOST[:-2] + FORM + length(len(WHOLE_FORM)) + WHOLE_FORM, [b"202"]),
    "json": (JSON_POST, [b"202"]),
    "raw, waits": (RAW_POST + WAIT + length(4) + b"data", [b"100", b"202"]),
    "raw, waits, 1.0": (RAW_POST.replace(b"/1.1", b"/1.0") + WAIT + length(4) + b"data", [b"202"]),
    "two in a row": (b"GET /models" + HOST + b"\r\n" + RAW_POST + length(4) + b"data", [b"200", b"202"]),
    "half a second": (RAW_POST + length(4) + b"data" + b"GET /li", [b"202"]),
    "compressed chunks": (
        RAW_POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n4\r\ndata\r\n0\r\n\r\n",
        [b"415"],
    ),
    "half a body": (RAW_POST + length(5) + b"data", [b"400"]),
    "half a chunk": (RAW_POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\ndata", [b"400"]),
    "half a form": (b"POST /caption" + HOST[:-2] + FORM + length(1000) + VIDEO, [b"400"]),
    "half of the headers": (b"GET /models" + HOST, []),
    "nothing": (b"", []),
}


@pytest.mark.parametrize(("sent", "statuses"), HALF_CLOSED.values(), ids=HALF_CLOSED)
def test_a_client_that_says_all_and_closes_its_side_gets_its_answers(
    api: LiveApi, sent: bytes, statuses: list[bytes]
) -> None:
    with connect(api, sent) as client:
        client.shutdown(socket.SHUT_WR)
        answer = rest(client)
    assert list(dict.fromkeys(re.findall(rb"HTTP/1.1 (\d+)", answer))) == statuses
    assert len(api.uploads) == (b"202" in statuses and sent[-1:] != b"}")
    assert b"400" not in statuses or b'"request_cut_off"' in answer
    assert api.staged == []


def test_headers_that_drip_end_as_those_that_do_not_come(api: LiveApi) -> None:
    with connect(api, b"GET /livez HTTP/1.1\r\n") as client:
        client.settimeout(0.05)
        began, answer = time.monotonic(), b""
        while not answer and time.monotonic() - began < 10:
            try:
                client.sendall(b"X-Drop: a\r\n")
                answer = client.recv(1000)
            except TimeoutError:
                continue
    assert time.monotonic() - began < 10
    head, body = answer.split(b"\r\n\r\n")
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "request_stalled"


def test_headers_without_end_are_refused(api: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    # a megabyte takes longer than SHORT where cores are busy
    monkeypatch.setattr(connections, "HEADER_SECONDS", 20)
    for filler in (b"X: " + b"a" * 1_000_000, b"X-a: b\r\n" * 100_000):
        with connect(api, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n") as client:
            with suppress(BrokenPipeError, ConnectionResetError):
                client.sendall(filler)
            answer = rest(client)
        assert answer == b"" or b"431 " in answer.splitlines()[0]
    assert api.client.get("/livez").status_code == 200


CHUNKED = b"POST /caption HTTP/1.1\r\nHost: localhost" + FORM + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize("flood", [b"a:\r\n", b"a: " + b"b" * 1000], ids=["lines", "one line"])
def test_trailers_without_end_are_refused(api: LiveApi, flood: bytes) -> None:
    began = time.monotonic()
    with connect(api, CHUNKED) as client:
        with suppress(ConnectionError):
            for _ in range(300):
                client.sendall(flood * (2000 // len(flood) + 1))
                time.sleep(0.001)
        answer = rest(client)
    assert time.monotonic() - began < 10
    assert not answer or answer.startswith(b"HTTP/1.1 431 ")  # what had not been read resets the connection


def test_requests_that_pile_up_on_a_connection_end_it(api: LiveApi) -> None:
    """14,000 of them fit into one chunk of what the server reads."""
    with connect(api) as client:
        with suppress(ConnectionError):
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)
        answers = rest(client)
    assert answers.count(b"HTTP/1.1 200 ") < 50
    assert api.client.get("/livez").status_code == 200


def test_some_requests_in_a_row_are_all_answered(api: LiveApi) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
    with connect(api, (request + b"\r\n") * 5 + request + b"Connection: close\r\n\r\n") as client:
        assert rest(client).count(b"HTTP/1.1 200 ") == 6


def test_an_answer_that_nobody_takes_is_given_up(api: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for one by one until every buffer on the way is full; more at once would end the connection."""
    is_full, pause = threading.Event(), LimitedProtocol.pause_writing

    def pause_writing(protocol: LimitedProtocol) -> None:
        is_full.set()
        pause(protocol)

    monkeypatch.setattr(LimitedProtocol, "pause_writing", pause_writing)
    api.client.get("/openapi.json")  # made once, which takes a busy machine so long that requests pile up
    api.client.close()
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", api.port))
        _until(lambda: _open_connections(api.port) == 1)
        for _ in range(1000):
            client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
            if is_full.wait(0.1):
                break
        assert is_full.is_set()
        _until(lambda: _open_connections(api.port) == 0)


def _until(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _open_connections(port: int) -> int:
    """The server's, which lives in this process."""
    everyone = psutil.Process().net_connections()
    return sum(one.status == "ESTABLISHED" and one.laddr.port == port for one in everyone if one.laddr)


def test_a_pipelined_upload_is_not_mistaken_for_headers(api: LiveApi) -> None:
    body = VIDEO + b"x" * 300_000 + b"\r\n--b--"
    request = b"POST /caption HTTP/1.1\r\nHost: localhost" + FORM + length(len(body)) + body
    last = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with connect(api, request + request + last) as client:
        answer = rest(client)
    assert (answer.count(b"HTTP/1.1 202"), answer.count(b"HTTP/1.1 200")) == (2, 1)


def test_a_connection_is_kept_between_requests(api: LiveApi) -> None:
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
    with connect(api) as client:
        for _ in range(2):
            client.sendall(request + length(4))  # a body that nobody reads, but it comes
            assert b"200 OK" in client.recv(65536)
            client.sendall(b"body")
            time.sleep(SHORT * 1.5)
        client.sendall(request + b"\r\n")
        assert b"200 OK" in client.recv(65536)


def test_many_half_open_connections_go_away_by_themselves(api: LiveApi) -> None:
    """As many as are let in, each with something else undone."""
    began = time.monotonic()
    with ExitStack() as stack:
        kinds = [sent for sent, _ in UNDONE.values()]
        clients = [stack.enter_context(connect(api, kinds[n % len(kinds)])) for n in range(LIMIT)]
        for client in clients:
            rest(client)
    assert time.monotonic() - began < 10
    assert api.client.get("/livez").status_code == 200


def test_one_client_too_many_is_told_when_to_come_back(api: LiveApi) -> None:
    api.client.close()
    with ExitStack() as stack:
        for _ in range(LIMIT):
            stack.enter_context(connect(api))
        with connect(api, b"GET /models HTTP/1.1\r\nHost: localhost\r\n\r\n") as client:
            head, body = rest(client).split(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"\r\nretry-after: 5" in head.lower()
        assert json.loads(body)["code"] == "too_many_connections"
        with connect(api, b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n") as client:
            assert rest(client).startswith(b"HTTP/1.1 200")  # or a supervisor would kill a busy service
        for _ in range(LIMIT // 2):
            stack.enter_context(connect(api))
        with connect(api) as client:
            assert rest(client).startswith(b"HTTP/1.1 503")  # without waiting for a request


def test_clients_that_vanish_are_let_go_of(api: LiveApi, monkeypatch: pytest.MonkeyPatch) -> None:
    """They asked to wait a minute for a job that nobody runs."""
    looks = 0
    read = api.service.jobs.get

    def counted(job_id: str) -> object:
        nonlocal looks
        looks += 1
        return read(job_id)

    body = VIDEO + b"data\r\n--b--"
    request = (
        b"POST /caption HTTP/1.1\r\nHost: localhost\r\nPrefer: wait=60" + FORM + length(len(body)) + body
    )
    clients = [connect(api, request) for _ in range(5)]
    deadline = time.monotonic() + 10
    while len(api.uploads) < 5 and time.monotonic() < deadline:
        time.sleep(0.02)
    for client in clients:
        client.close()
    given_up = 'reelword_requests_total{method="POST",route="/caption",status="499"} 5.0'
    _until(lambda: given_up in httpx.get(f"http://127.0.0.1:{api.port}/metrics").text)
    monkeypatch.setattr(api.service.jobs, "get", counted)
    time.sleep(1.0)
    assert looks == 0
    text = httpx.get(f"http://127.0.0.1:{api.port}/metrics").text
    assert "reelword_jobs_waiting 5.0" in text  # accepted is accepted


def test_a_request_that_waits_looks_at_its_job_when_it_changes(
    api: LiveApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    get = api.service.jobs.get

    def counted(job_id: str) -> Job | None:
        looks.append(job_id)
        return get(job_id)

    monkeypatch.setattr(api.service.jobs, "get", counted)
    response = send(api, headers={"Prefer": "wait=2"})
    assert (response.status_code, response.headers["preference-applied"]) == (202, "wait=2")
    assert 1 <= len(looks) <= 3
