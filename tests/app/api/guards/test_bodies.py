"""Every body has a pace and a size, whatever route reads it: all writing routes of the schema, one by one."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from app.api.application import create_app
from app.api.guards import connections
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, live_api

SHORT = 0.6
LIMIT = 12
#: Each is asked about a job that is not there.
ROUTES = sorted(
    f"{method.upper()} {re.sub('{.*?}', '0' * 32, path)}"
    for path, methods in create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()["paths"].items()
    for method in methods
    if method not in ("get", "head")
)
#: Routes that take videos, whose size is a setting.
VIDEOS = ("POST /batches", "POST /caption")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[LiveApi]:
    folder = tmp_path_factory.mktemp("bodies")
    settings = Settings(
        data=folder,
        redis_url=redis_server.url,
        namespace=folder.name,
        max_connections=LIMIT,
        min_free_bytes=0,
    )
    with live_api(settings) as running:
        yield running


def begin(api: LiveApi, route: str, rest: bytes, source: str = "127.0.0.1") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", api.port), timeout=10, source_address=(source, 0))
    head = f"{route} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {_kind(route)}\r\n"
    client.sendall(head.encode() + rest)
    return client


def _kind(route: str) -> str:
    return "application/x-www-form-urlencoded" if route.endswith("/session") else "application/json"


def read_all(client: socket.socket) -> bytes:
    received = b""
    with suppress(ConnectionError):
        while data := client.recv(65536):
            received += data
    return received


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("trickles", [False, True])
def test_a_body_that_stalls_or_trickles_frees_its_connection(
    api: LiveApi, route: str, trickles: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("BODY_SECONDS", "LEAVE_SECONDS"):
        monkeypatch.setattr(connections, name, SHORT)
    with begin(api, route, b"Content-Length: 1000\r\n\r\n{") as client:
        until = time.monotonic() + 4 * SHORT
        with suppress(ConnectionError):
            while trickles and time.monotonic() < until:
                client.sendall(b" ")
                time.sleep(SHORT / 4)
        assert re.match(rb"HTTP/1.1 (4|200)", read_all(client))


@pytest.mark.parametrize("route", [route for route in ROUTES if route not in VIDEOS])
def test_a_body_beyond_what_a_route_takes_is_refused(api: LiveApi, route: str) -> None:
    piece = b"10000\r\n" + b" " * 65536 + b"\r\n"
    with begin(api, route, b"Transfer-Encoding: chunked\r\n\r\n") as client:
        with suppress(ConnectionError):
            for _ in range(17):
                client.sendall(piece)
            client.sendall(b"0\r\n\r\n")
            client.shutdown(socket.SHUT_WR)
        answer = read_all(client)
    assert not answer or re.match(rb"HTTP/1.1 (4|200)", answer)  # nothing: it hung up with bytes on the way
    if route == "POST /webhooks/test":
        assert b"body_too_large" in answer


def test_one_address_has_a_share_of_the_connections(api: LiveApi) -> None:
    head = b"Content-Length: 1\r\n\r\n"
    clients = [begin(api, "POST /session", head, "127.0.0.2") for _ in range(LIMIT // 4)]
    with begin(api, "POST /session", head, "127.0.0.2") as one_more:
        assert b"too_many_connections" in read_all(one_more)
    assert api.client.get("/livez").status_code == 200
    for client in clients:
        client.close()
