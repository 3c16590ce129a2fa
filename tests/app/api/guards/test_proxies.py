"""Behind a proxy, a real one on a socket: whose word counts for a client's address and scheme; and CORS."""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import parse_headers
from io import BytesIO

import httpx
import pytest
from pydantic import ValidationError

from app.access.keys import make_key
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send

CLIENT = "203.0.113.9"


class Proxy(socketserver.ThreadingTCPServer):
    """Passes a request on with headers added behind its line, and the answer back; then it hangs up."""

    def __init__(self, target: int, added: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.target, self.added = target, added


class Forwarder(socketserver.StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        line, headers = self.rfile.readline(), b""
        while not headers.endswith(b"\r\n\r\n"):
            headers += self.rfile.readline()
        length = int(dict(parse_headers(BytesIO(headers))).get("Content-Length", 0))
        with socket.create_connection(("127.0.0.1", self.server.target)) as service:
            service.sendall(line + self.server.added + headers + self.rfile.read(length))
            while data := service.recv(65536):
                self.wfile.write(data)


@contextmanager
def proxied(api: LiveApi, added: bytes) -> Iterator[httpx.Client]:
    """A client that asks by way of a proxy, one request a connection."""
    with Proxy(api.port, added) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        headers = {"Connection": "close", "Host": "localhost"}
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{proxy.server_address[1]}", headers=headers
            ) as client:
                yield client
        finally:
            proxy.shutdown()
            thread.join()


FORWARDED = f"X-Forwarded-For: 10.9.9.9, {CLIENT}\r\nX-Forwarded-Proto: https\r\n".encode()


@pytest.mark.parametrize(
    ("trusted", "believed"),
    [("127.0.0.1", True), ("127.0.0.0/8, ::1", True), ("", False), ("192.0.2.1", False)],
)
def test_forwarded_headers_are_a_trusted_proxy_s_alone(
    settings: Settings, capfd: pytest.CaptureFixture[str], trusted: str, believed: bool
) -> None:
    changed = {"access": "keys", "trusted_proxies": trusted, "log_format": "json"}
    with live_api(settings.model_copy(update=changed)) as api, proxied(api, FORWARDED) as client:
        key, token = make_key("ada")
        api.service.keys.store.add(key)
        response = client.post("/session", data={"key": token})
        assert response.status_code == 200
    (line,) = [json.loads(line) for line in capfd.readouterr().err.splitlines() if '"audit"' in line]
    assert line["address"] == (CLIENT if believed else "127.0.0.1")
    assert ("Secure" in response.headers["set-cookie"]) == believed
    assert ("strict-transport-security" in response.headers) == believed


@pytest.mark.parametrize(
    "header",
    ["X-Forwarded-For: 203.0.113.5", "X-Real-IP: 203.0.113.5", "Forwarded: for=203.0.113.5", "Via: 1.1 p"],
)
def test_a_service_open_by_default_serves_no_proxy(
    settings: Settings, capfd: pytest.CaptureFixture[str], header: str
) -> None:
    with live_api(settings) as api, proxied(api, f"{header}\r\n".encode()) as client:
        for response in (client.get("/jobs"), client.get("/metrics"), client.post("/caption")):
            assert "REELWORD_" not in assert_problem(response, 403, "proxy_not_named")["hint"]
        assert api.client.get("/jobs").status_code == 200
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "request refused" in line]
    assert "Set REELWORD_TRUSTED_PROXIES" in line


def test_a_service_that_is_open_by_its_setting_serves_a_proxy_s_clients(settings: Settings) -> None:
    changed = {"access": "open", "allowed_hosts": "reel.example"}
    with live_api(settings.model_copy(update=changed)) as api, proxied(api, FORWARDED) as client:
        assert client.get("/jobs", headers={"Host": "reel.example"}).status_code == 200


@pytest.mark.parametrize("proxies", ["proxy", "10.0.0.1:80", "10.0.0.5/24", "*"])
def test_what_is_no_address_of_a_proxy_is_refused_at_the_start(proxies: str) -> None:
    with pytest.raises(ValidationError, match="is no address"):
        Settings(trusted_proxies=proxies)


# ---- pages of other sites ----

APP = "https://app.example"


@pytest.fixture
def shared(settings: Settings) -> Iterator[LiveApi]:
    changed = {"access": "keys", "cors_origins": f"{APP}, http://localhost:3000"}
    with live_api(settings.model_copy(update=changed)) as running:
        yield running


def test_a_named_site_s_page_may_ask_with_a_key(shared: LiveApi) -> None:
    headers = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    headers["Access-Control-Request-Headers"] = "authorization, idempotency-key"
    before = shared.client.options("/caption", headers=headers)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == APP
    assert "access-control-allow-credentials" not in before.headers
    key, token = make_key("ada")
    shared.service.keys.store.add(key)
    response = send(shared, headers={"Origin": APP, "Authorization": f"Bearer {token}"})
    assert response.status_code == 202
    assert response.headers["access-control-allow-origin"] == APP
    assert "Location" in response.headers["access-control-expose-headers"]


def test_its_refusals_can_be_read_there(shared: LiveApi) -> None:
    response = send(shared, headers={"Origin": APP})
    assert_problem(response, 401, "key_missing")
    assert response.headers["access-control-allow-origin"] == APP


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "http://app.example", f"{APP}.evil.example", "null"]
)
def test_other_sites_pages_may_not(shared: LiveApi, origin: str) -> None:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in shared.client.options("/caption", headers=headers).headers
    key, token = make_key("ada")
    shared.service.keys.store.add(key)
    response = send(shared, headers={"Origin": origin, "Authorization": f"Bearer {token}"})
    assert_problem(response, 403, "origin_not_allowed")
    assert "access-control-allow-origin" not in response.headers


def test_nobody_is_named_unless_asked_for(api: LiveApi) -> None:
    assert "access-control-allow-origin" not in api.client.get("/livez", headers={"Origin": APP}).headers


@pytest.mark.parametrize(
    "origins", ["app.example", "https://app.example/", "https://*.example", "ftp://a.example"]
)
def test_what_is_no_origin_is_refused_at_the_start(origins: str) -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        Settings(cors_origins=origins)


# ---- what a browser may do ----


@pytest.mark.parametrize("path", ["/", "/docs", "/livez", "/static/page.js", "/nowhere"])
def test_every_answer_says_what_a_browser_may_do(api: LiveApi, path: str) -> None:
    headers = api.client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert "camera=()" in headers["permissions-policy"]
    assert "strict-transport-security" not in headers, "not by http"
