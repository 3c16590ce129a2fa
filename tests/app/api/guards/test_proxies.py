"""Behind a proxy, a real one on a socket: whose word counts for a client's address and scheme; and CORS."""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import parse_headers
from io import BytesIO
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic import ValidationError

from app.access.keys import make_key
from app.api.page_files import STATIC
from app.settings import Settings
from reelword import Client
from tests.app.live_api import LiveApi, assert_problem, live_api, send
from tests.app.scripted_worker import ScriptedWorker

CLIENT = "203.0.113.9"


class Proxy(socketserver.ThreadingTCPServer):
    """Passes a request on with headers added behind its line, and the answer back; then it hangs up.

    Of a request outside of ``path`` it knows nothing; ``stripped`` of the path is not passed on.
    """

    def __init__(self, target: int, added: bytes, path: bytes = b"", stripped: bytes = b"") -> None:
        super().__init__(("127.0.0.1", 0), Forwarder)
        self.target, self.added, self.path, self.stripped = target, added, path, stripped


class Forwarder(socketserver.StreamRequestHandler):
    server: Proxy

    def handle(self) -> None:
        line, headers = self.rfile.readline(), b""
        if b" %s/" % self.server.path not in line:
            self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            return
        line = line.replace(self.server.stripped, b"", 1)
        while not headers.endswith(b"\r\n\r\n"):
            headers += self.rfile.readline()
        length = int(dict(parse_headers(BytesIO(headers))).get("Content-Length", 0))
        with socket.create_connection(("127.0.0.1", self.server.target)) as service:
            service.sendall(line + self.server.added + headers + self.rfile.read(length))
            while data := service.recv(65536):
                self.wfile.write(data)


@contextmanager
def proxied(api: LiveApi, added: bytes, path: bytes = b"", stripped: bytes = b"") -> Iterator[httpx.Client]:
    """A client that asks by way of a proxy, one request a connection."""
    with Proxy(api.port, added, path, stripped) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        headers = {"Connection": "close", "Host": "localhost"}
        try:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{proxy.server_address[1]}", headers=headers, timeout=60
            ) as client:
                yield client
        finally:
            proxy.shutdown()
            thread.join()


FORWARDED = f"X-Forwarded-For: 10.9.9.9, {CLIENT}\r\nX-Forwarded-Proto: https\r\n".encode()


@pytest.mark.parametrize(
    ("trusted", "believed"),
    [(("127.0.0.1",), True), (("127.0.0.0/8", "::1"), True), ((), False), (("192.0.2.1",), False)],
)
def test_forwarded_headers_are_a_trusted_proxy_s_alone(
    settings: Settings, capfd: pytest.CaptureFixture[str], trusted: tuple[str, ...], believed: bool
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
    changed = {"access": "open", "allowed_hosts": ("reel.example",)}
    with live_api(settings.model_copy(update=changed)) as api, proxied(api, FORWARDED) as client:
        assert client.get("/jobs", headers={"Host": "reel.example"}).status_code == 200


@pytest.mark.parametrize("proxies", ["proxy", "10.0.0.1:80", "10.0.0.5/24", "*"])
def test_what_is_no_address_of_a_proxy_is_refused_at_the_start(proxies: str) -> None:
    with pytest.raises(ValidationError, match="is no address"):
        Settings(trusted_proxies=proxies)


# ---- below a path ----

PREFIX = b"X-Forwarded-Prefix: /reel\r\n"
BELOW = {
    "the proxy says so and strips": ("", PREFIX, b"/reel"),
    "the proxy says so": ("", PREFIX, b""),
    "the setting says so, the proxy strips": ("/reel/", b"", b"/reel"),
    "the setting says so": ("/reel", b"", b""),
    "its word counts before the setting's": ("/other", PREFIX, b"/reel"),
}


@contextmanager
def below(
    settings: Settings, root: str, added: bytes, stripped: bytes, **changed: str
) -> Iterator[tuple[LiveApi, httpx.Client]]:
    changed = {"access": "open", "trusted_proxies": "127.0.0.1", "root_path": root, **changed}
    settings = Settings.model_validate({**settings.model_dump(by_alias=False), **changed})
    with live_api(settings) as api, proxied(api, added, b"/reel", stripped) as client:
        yield api, client


@pytest.mark.parametrize(("root", "added", "stripped"), BELOW.values(), ids=BELOW)
def test_every_address_that_page_and_answers_name_is_below_the_proxy_s_path(
    settings: Settings, worker: ScriptedWorker, root: str, added: bytes, stripped: bytes
) -> None:
    with below(settings, root, added, stripped) as (_, client):
        sent = client.post("/reel/caption", files={"video": ("a.mp4", b"a video")})
        again = client.post("/reel/caption", files={"video": ("b.mp4", b"another")})
        worker.succeed(worker.take())
        location = sent.headers["location"]
        job, batch = client.get(location).json(), client.post("/reel/batches", files={"video": b"a video"})
        page, listed = client.get(location.replace("/jobs/", "/f/")).text, client.get("/reel/jobs?limit=1")
        addresses = [location, *(address for name, address in job["urls"].items() if name != "recaption")]
        addresses += [again.headers["location"], batch.headers["location"], *batch.json()["urls"].values()]
        addresses += re.findall(
            r'(?:src|href)="(/[^"]*)"',
            page + client.get("/reel/docs").text + client.get("/reel/reference").text,
        )
        addresses += re.findall(r'content="http://localhost(/[^"]*)"', page)
        addresses += re.findall(r"<(.*)>", listed.headers["link"])
        addresses.append(client.post(urlsplit(job["urls"]["recaption"]).path).headers["location"])
        for address in (urlsplit(each)._replace(scheme="", netloc="").geturl() for each in addresses):
            assert client.get(address).status_code == 200, address
            assert address.startswith("/reel/"), address
        with Client(str(client.base_url.join("/reel"))) as ours:
            assert ours.job(job["id"]).state == "succeeded"
        servers = client.get("/reel/openapi.json").json()["servers"]
        assert [server["url"] for server in servers] == ["/reel", "."]
        assert "/reel/openapi.json" in client.get("/reel/docs").text
        assert (
            assert_problem(client.get("/reel/jobs/none"), 404, "unknown_job")["instance"] == "/reel/jobs/none"
        )
        assert "script-src 'self';" in client.get("/reel/").headers["content-security-policy"]


def test_the_page_s_scripts_name_each_path_of_the_service_below_the_proxy_s() -> None:
    """``ask`` and ``at`` put it before a path; what else takes one is given none that begins with a slash."""
    for file in STATIC.rglob("*.js"):
        bare = re.search(r"(State|fetch|open|EventSource)\((?:[^()]*, )?[\"`]/.*", file.read_text())
        assert bare is None, (file.name, bare and bare[0])


def test_a_cookie_is_for_the_path_alone(settings: Settings) -> None:
    with below(settings, "", PREFIX, b"/reel", access="keys") as (api, client):
        key, token = make_key("ada")
        api.service.keys.store.add(key)
        assert "Path=/reel;" in client.post("/reel/session", data={"key": token}).headers["set-cookie"]
        assert client.get("/reel/jobs").status_code == 200


@pytest.mark.parametrize("prefix", ["//evil.example", "/a b", '/"><script>', "/../x", "reel", "/a,b"])
def test_a_prefix_that_is_no_path_is_passed_over(settings: Settings, prefix: str) -> None:
    changed = {"access": "open", "trusted_proxies": ("127.0.0.1",)}
    added = f"X-Forwarded-Prefix: {prefix}\r\n".encode()
    with live_api(settings.model_copy(update=changed)) as api, proxied(api, added) as client:
        assert client.get("/").text == api.client.get("/").text
    with pytest.raises(ValidationError, match="is no path"):
        Settings(root_path=prefix)


def test_a_prefix_is_a_trusted_proxy_s_alone(settings: Settings) -> None:
    changed = {"access": "open", "trusted_proxies": ("192.0.2.1",)}
    with live_api(settings.model_copy(update=changed)) as api, proxied(api, PREFIX) as client:
        assert "/reel" not in client.get("/").text


@pytest.mark.parametrize("root", ["/static", "/f", "/docs", "/livez"])
def test_no_prefix_opens_what_needs_a_key(settings: Settings, root: str) -> None:
    changed = {"access": "keys", "trusted_proxies": ("127.0.0.1",), "root_path": root}
    with live_api(settings.model_copy(update=changed)) as api:
        for path in ("/jobs", f"{root}/jobs"):
            assert api.client.get(path).status_code == 401


# ---- pages of other sites ----

APP = "https://app.example"


@pytest.fixture
def shared(settings: Settings) -> Iterator[LiveApi]:
    changed = {"access": "keys", "cors_origins": (APP, "http://localhost:3000")}
    with live_api(settings.model_copy(update=changed)) as running:
        yield running


def test_a_named_site_s_page_may_ask_with_a_key(shared: LiveApi) -> None:
    headers = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    asked = "authorization, idempotency-key, traceparent, tracestate, content-disposition, if-range"
    headers["Access-Control-Request-Headers"] = asked
    before = shared.client.options("/caption", headers=headers)
    assert before.status_code == 200
    assert before.headers["access-control-allow-origin"] == APP
    assert "access-control-allow-credentials" not in before.headers
    key, token = make_key("ada")
    shared.service.keys.store.add(key)
    response = send(shared, headers={"Origin": APP, "Authorization": f"Bearer {token}"})
    assert response.status_code == 202
    assert response.headers["access-control-allow-origin"] == APP
    exposed = response.headers["access-control-expose-headers"].split(", ")
    assert {"Location", "Content-Range", "Accept-Ranges"} <= set(exposed)


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
    assert headers["cross-origin-opener-policy"] == headers["cross-origin-resource-policy"] == "same-origin"
    assert "strict-transport-security" not in headers, "not by http"
