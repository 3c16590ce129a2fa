"""Who may ask: names that are the service's, pages that are its own; and what may be asked of every path."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.api.guards.access import trusted_hosts
from app.serve.embedded_redis import RedisServer
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer) -> Iterator[LiveApi]:
    settings = Settings(
        data=tmp_path_factory.mktemp("access"), redis_url=redis_server.url, namespace="access",
        allowed_hosts="reel.example, *.lan, fd00::7", access="open", min_free_bytes=0,
    )  # fmt: skip
    with live_api(settings) as running:
        yield running


OURS = ["localhost", "LocalHost:8000", "127.0.0.1", "[::1]:8000", "reel.example", "a.lan:80", "[fd00::7]"]
FOREIGN = [
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "10.0.0.1",
    "lan",
    "a b",
    "",
    "x:y",
]


@pytest.mark.parametrize("host", OURS)
def test_the_services_own_names_are_answered(api: LiveApi, host: str) -> None:
    assert api.client.get("/livez", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names_are_refused_for_reading_and_writing(api: LiveApi, host: str) -> None:
    response = api.client.get("/livez", headers={"Host": host})
    body = assert_problem(response, 400, "host_not_allowed")
    assert "REELWORD_" not in body["hint"]
    assert response.headers["x-content-type-options"] == "nosniff"
    for name in ("cross-origin-resource-policy", "cross-origin-opener-policy"):
        assert response.headers[name] == "same-origin"
    assert_problem(send(api, headers={"Host": host}), 400, "host_not_allowed")


def test_two_hosts_are_none(api: LiveApi) -> None:
    client = http.client.HTTPConnection("127.0.0.1", api.port, timeout=10)
    client.putrequest("GET", "/livez", skip_host=True)
    client.putheader("Host", "localhost")
    client.putheader("Host", "evil.example")
    client.endheaders()
    response = client.getresponse()
    assert (response.status, json.loads(response.read())["code"]) == (400, "host_not_allowed")
    client.close()


def test_pages_from_elsewhere_may_not_write(api: LiveApi) -> None:
    location = send(api).headers["location"]
    origin_here = f"http://127.0.0.1:{api.port}"
    foreign = [
        "https://evil.example", "null", "http://localhost:1", "http://[", "", f"{origin_here}.evil.example", "file://",
        f"http://evil.example@127.0.0.1:{api.port}",
    ]  # fmt: skip
    for origin in foreign:
        for response in (
            send(api, headers={"Origin": origin}),
            api.client.delete(location, headers={"Origin": origin}),
        ):
            assert_problem(response, 403, "origin_not_allowed")
        assert api.client.get(location, headers={"Origin": origin}).json()["state"] == "queued"
    both = api.client.delete(location, headers=[("Origin", origin_here), ("Origin", "https://evil.example")])
    assert_problem(both, 403, "origin_not_allowed")


def test_the_services_own_page_and_named_ones_may_write(api: LiveApi) -> None:
    origin_here = f"http://127.0.0.1:{api.port}"
    for origin in (
        origin_here,
        origin_here.upper().replace("HTTP", "http"),
        "https://reel.example",
        "http://reel.example:8080",
    ):
        location = send(api, headers={"Origin": origin}).headers["location"]
        assert api.client.delete(location, headers={"Origin": origin}).status_code == 200


@pytest.mark.parametrize(
    ("changed", "added"),
    [
        ({}, []),
        ({"host": "0.0.0.0"}, []),
        ({"host": "192.168.1.5"}, ["192.168.1.5"]),
        ({"allowed_hosts": "reel.example", "peer_hosts": "api"}, ["reel.example", "api"]),
        ({"host": "::", "allowed_hosts": "FD00::7,Reel.Example"}, ["[fd00::7]", "reel.example"]),
    ],
)
def test_names_follow_the_settings(changed: dict[str, Any], added: list[str]) -> None:
    assert trusted_hosts(Settings(**changed)) == ["localhost", "127.0.0.1", "[::1]", *added]


def test_any_name_is_answered_where_that_is_asked_for(tmp_path: Path, redis_server: RedisServer) -> None:
    settings = Settings(
        data=tmp_path, redis_url=redis_server.url, namespace="any", allowed_hosts="*", access="open"
    )
    with live_api(settings) as api:
        assert api.client.get("/livez", headers={"Host": "evil.example"}).status_code == 200
        assert_problem(send(api, headers={"Origin": "https://evil.example"}), 403, "origin_not_allowed")


@pytest.mark.parametrize("hosts", ["http://reel.example", "reel.example:8000", "a*", "*.*", "a b"])
def test_what_is_no_name_is_refused_at_the_start(hosts: str) -> None:
    with pytest.raises(ValidationError, match="is no host"):
        Settings(allowed_hosts=hosts)


# ---- methods ----


def test_head_answers_as_get_does(api: LiveApi) -> None:
    location = send(api).headers["location"]
    paths = ["/", "/livez", "/readyz", "/models", "/metrics", "/docs", "/openapi.json", "/static/page.js",
             location, f"{location}/attention", f"/jobs/{'0' * 32}", "/nowhere"]  # fmt: skip
    for path in paths:
        get, head = api.client.get(path), api.client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b""), path
        if path != "/metrics":  # which counts the request in between
            for own in ("date", "x-request-id", "server-timing"):
                get.headers[own] = head.headers[own]
            assert head.headers == get.headers, path


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/caption", "POST"),
        ("GET", "/caption", "POST"),
        ("HEAD", "/caption", "POST"),
        ("POST", f"/jobs/{'0' * 32}", "DELETE, GET, HEAD"),
        ("PATCH", "/livez", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_allow_lists_every_method_of_a_path(api: LiveApi, method: str, path: str, allowed: str) -> None:
    response = api.client.request(method, path)
    assert (response.status_code, response.headers["allow"]) == (405, allowed)


def test_a_slash_too_many_is_told(api: LiveApi) -> None:
    """A redirection without a body would leave whoever uploads without a word."""
    assert_problem(api.client.post("/caption/"), 404, "not_found")


# ---- options in the wrong place ----


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("captioner=g2l", "captioner"),
        ("captioner=", "captioner"),
        ("beam_size=3&max_length=9", "beam_size, max_length"),
        ("wait=3", "wait"),
        ("attention", "attention"),
        ("%ff=%00", "\ufffd"),
    ],
)
def test_options_in_the_address_are_refused_by_name(api: LiveApi, query: str, named: str) -> None:
    response = api.client.post(f"/caption?{query}", files={"video": ("a.mp4", b"data")})
    body = assert_problem(response, 422, "option_in_query")
    assert named in body["detail"]
    assert "fields of the form" in body["hint"]


def test_an_address_without_options_is_taken(api: LiveApi) -> None:
    assert api.client.post("/caption?", files={"video": ("a.mp4", b"data")}).status_code == 202


# ---- forms as they were reported ----

HEAD = b'--b\r\nContent-Disposition: form-data; name="video"; filename="%b"\r\n\r\n'
FORM = HEAD % b"a.mp4" + b"data\r\n--b--"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (FORM, None),
        (FORM + b"\r\n", None),
        (FORM + b"\r\n\r\n", None),
        (b"a preamble\r\n" + FORM + b"\r\nan epilogue", None),
        (HEAD % b"caf\xe9.mp4" + b"data\r\n--b--", None),
        (HEAD % b"\xff\xfe\x01" + b"data\r\n--b--", None),
        (
            b'--b\r\nContent-Disposition: form-data; name="video"' + b"; a=b" * 200_000 + b"\r\n",
            "malformed_form",
        ),
        (b"--b\r\n\xff\xfe: a\r\n\r\ndata\r\n--b--", "malformed_form"),
        (b'--b\r\nContent-Disposition: form-data; name="\xff"\r\n\r\nx\r\n--b--', "unknown_field"),
    ],
)
def test_reported_forms(api: LiveApi, body: bytes, code: str | None) -> None:
    headers = {"content-type": "multipart/form-data; boundary=b"}
    response = api.client.post("/caption", content=body, headers=headers)
    if code is None:
        assert response.status_code == 202
    else:
        assert (response.json()["code"], 400 <= response.status_code < 500) == (code, True)


def test_a_missing_boundary_is_said_to_be_missing(api: LiveApi) -> None:
    response = api.client.post("/caption", content=FORM, headers={"content-type": "multipart/form-data"})
    assert "boundary is missing" in assert_problem(response, 400, "malformed_form")["detail"]


# ---- the description ----


def test_openapi_has_the_headers_that_clients_need(api: LiveApi) -> None:
    paths = api.client.get("/openapi.json").json()["paths"]
    post, job = paths["/caption"]["post"], paths["/jobs/{job_id}"]
    assert [one["name"] for one in post["parameters"] if one["in"] == "header"] == [
        "prefer",
        "idempotency-key",
    ]
    assert {"Location", "Preference-Applied", "Retry-After"} <= set(post["responses"]["202"]["headers"])
    assert "Location" in post["responses"]["200"]["headers"]
    for answer in (
        post["responses"]["503"],
        job["get"]["responses"]["200"],
        job["delete"]["responses"]["202"],
    ):
        assert "Retry-After" in answer["headers"]
    assert "Retry-After" in paths["/readyz"]["get"]["responses"]["503"]["headers"]
