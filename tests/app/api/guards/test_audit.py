"""The audit: a line for each write and each refusal, which says who, what, which job, and how it ended."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.access.keys import make_key
from app.api.refusals import HostNotAllowed
from app.settings import Settings
from tests.app.live_api import live_api, send


def audited(said: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in said.readouterr().err.splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == "audit"]


def test_each_write_is_told_with_its_key_and_its_job(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    with live_api(settings.model_copy(update={"access": "keys", "log_format": "json"})) as api:
        key, token = make_key("ada")
        api.service.keys.store.add(key)
        bearer = {"Authorization": f"Bearer {token}"}
        location = send(api, headers=bearer).headers["location"]
        api.client.get(location, headers=bearer)
        api.client.delete(location, headers=bearer)
        send(api, headers=bearer, beam_size=0)
    sent, deleted, refused = audited(capfd)
    job = location.rpartition("/")[2]
    assert (sent["who"], sent["key"], sent["what"], sent["job"]) == ("ada", key.id, "POST /caption", job)
    assert (sent["outcome"], sent["problem"], sent["address"]) == (202, None, "127.0.0.1")
    assert (deleted["what"], deleted["job"], deleted["outcome"]) == (f"DELETE {location}", job, 200)
    assert (refused["outcome"], refused["problem"], refused["job"]) == (422, "invalid_option", None)


def test_each_refusal_is_told_and_no_secret(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    with live_api(settings.model_copy(update={"access": "keys", "log_format": "json"})) as api:
        key, token = make_key("reader", scopes=("read",))
        api.service.keys.store.add(key)
        secret = make_key("eve")[1]
        api.client.get("/models")
        api.client.get("/models", headers={"Authorization": f"Bearer {secret}"})
        send(api, headers={"Authorization": f"Bearer {token}"})
        api.client.get("/livez", headers={"Host": "evil.example"})
        api.client.post("/session", data={"key": secret})
        api.client.get("/livez")
    logged = capfd.readouterr().err
    lines = [json.loads(line) for line in logged.splitlines() if '"audit"' in line]
    assert [line["problem"] for line in lines] == [
        "key_missing", "key_wrong", "key_scope", "host_not_allowed", "key_wrong",
    ]  # fmt: skip
    assert [line["who"] for line in lines] == ["nobody", "nobody", "reader", "nobody", "nobody"]
    assert secret.rpartition("_")[2] not in logged
    assert token.rpartition("_")[2] not in logged


def test_an_open_service_tells_its_writes_too(settings: Settings, capfd: pytest.CaptureFixture[str]) -> None:
    with live_api(settings.model_copy(update={"log_format": "json"})) as api:
        send(api)
        api.client.get("/%1b[2J%0a", headers={"Host": "evil.example"})
    sent, odd = audited(capfd)
    assert (sent["who"], sent["key"], sent["outcome"]) == ("nobody", None, 202)
    assert odd["what"].isprintable()


def test_the_first_name_that_is_refused_is_told_with_what_lets_it_in(
    settings: Settings, capfd: pytest.CaptureFixture[str]
) -> None:
    with live_api(settings.model_copy(update={"log_format": "json"})) as api:
        for name in ("reel.example", "other.example"):
            api.client.get("/livez", headers={"Host": name})
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines() if "request refused" in line]
    assert [(line["level"], line["hint"]) for line in lines] == [("warning", HostNotAllowed.operator_hint)]
    assert "reel.example" in lines[0]["why"]
