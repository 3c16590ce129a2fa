"""Signing a page in: the cookie that a key is changed for, what it opens, and who may not use it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.cookies import SimpleCookie

import httpx
import pytest

from app.access import key_ring
from app.access.keys import make_key
from app.settings import Settings
from tests.app.live_api import LiveApi, assert_problem, live_api, send


@pytest.fixture
def locked(settings: Settings) -> Iterator[LiveApi]:
    with live_api(settings.model_copy(update={"access": "keys"})) as running:
        yield running


@pytest.fixture
def token(locked: LiveApi) -> str:
    key, token = make_key("ada", scopes=("read", "write"))
    locked.service.keys.store.add(key)
    return token


def sign_in(api: LiveApi, token: str, **headers: str) -> httpx.Response:
    return api.client.post("/session", data={"key": token}, headers=headers)


def cookie_of(response: httpx.Response) -> SimpleCookie:
    return SimpleCookie(response.headers["set-cookie"])


def test_a_page_asks_whether_it_needs_a_key(api: LiveApi) -> None:
    assert api.client.get("/session").json() == {"required": False, "name": None, "scopes": []}
    response = sign_in(api, "whatever")
    assert (response.status_code, "set-cookie" in response.headers) == (200, False)


def test_a_page_is_signed_in_by_a_key_and_out_again(locked: LiveApi, token: str) -> None:
    assert locked.client.get("/session").json() == {"required": True, "name": None, "scopes": []}
    response = sign_in(locked, token)
    assert response.json() == {"required": True, "name": "ada", "scopes": ["read", "write"]}
    assert response.headers["cache-control"] == "no-store"
    location = send(locked).headers["location"]
    assert locked.client.get(location).json()["state"] == "queued"
    assert locked.client.get("/session").json()["name"] == "ada"

    copied = dict(locked.client.cookies)
    assert locked.client.delete("/session").json()["name"] is None
    assert dict(locked.client.cookies) == {}
    locked.client.cookies.update(copied)
    assert_problem(locked.client.get(location), 401, "key_wrong")


def test_the_cookie_is_for_this_page_alone_and_is_not_the_key(locked: LiveApi, token: str) -> None:
    (cookie,) = cookie_of(sign_in(locked, token)).values()
    assert cookie["httponly"] is True
    assert (cookie["samesite"], cookie["path"], cookie["domain"]) == ("strict", "/", "")
    assert int(cookie["max-age"]) == 7 * 86400
    assert cookie["secure"] == "", "by http a browser would not send it back"
    assert cookie.value not in token


def test_pages_from_elsewhere_neither_sign_in_nor_write_with_the_cookie(locked: LiveApi, token: str) -> None:
    evil = {"Origin": "https://evil.example"}
    assert_problem(sign_in(locked, token, **evil), 403, "origin_not_allowed")
    sign_in(locked, token)
    assert_problem(send(locked, headers=evil), 403, "origin_not_allowed")
    assert_problem(locked.client.delete("/session", headers=evil), 403, "origin_not_allowed")
    assert send(locked).status_code == 202


def test_a_header_goes_before_the_cookie(locked: LiveApi, token: str) -> None:
    sign_in(locked, token)
    response = locked.client.get("/models", headers={"Authorization": f"Bearer {make_key('eve')[1]}"})
    assert_problem(response, 401, "key_wrong")


@pytest.mark.parametrize("cookie", ["", "short", "0" * 64, 'a"b; c', "0" * 5000])
def test_other_cookies_open_nothing(locked: LiveApi, cookie: str) -> None:
    response = locked.client.get("/models", headers={"Cookie": f"reelword_session={cookie}"})
    assert (response.status_code, response.json()["code"][:4]) == (401, "key_")


def test_a_revoked_key_signs_its_pages_out(
    locked: LiveApi, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_ring, "FRESH_SECONDS", 0.2)
    sign_in(locked, token)
    (key_id,) = locked.service.keys.store.all()
    locked.service.keys.store.revoke(key_id)
    time.sleep(0.25)
    assert_problem(locked.client.get("/models"), 401, "key_wrong")


def test_signing_in_counts_for_the_key_s_rate(locked: LiveApi) -> None:
    key, token = make_key("eve", rate="2/minute")
    locked.service.keys.store.add(key)
    assert [sign_in(locked, token).status_code for _ in range(2)] == [200, 200]
    assert_problem(sign_in(locked, token), 429, "rate_limited")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"key=rw_1_2", 401, "key_wrong"),
        (b"", 401, "key_missing"),
        (b"key=a&key=b", 401, "key_missing"),
        (b"\xff\xfe%%%", 401, "key_missing"),
        (b"a=1&" * 500 + b"key=x", 401, "key_wrong"),
        (b"key=" + b"x" * 100_000, 400, "malformed_form"),
    ],
)
def test_what_is_no_key_is_refused(locked: LiveApi, body: bytes, status: int, code: str) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert_problem(locked.client.post("/session", content=body, headers=headers), status, code)
