"""``reelword keys``: a key is printed once, listed without its secret, and revoked by name or id."""

from __future__ import annotations

import json
import re
import time

import pytest
from typer.testing import CliRunner, Result

from app.access.keys import KeyStore, read_token
from app.cli.main import cli
from app.cli.service.keys import seconds_of
from app.errors import UsageError
from app.jobs.job import Keys
from app.jobs.job_store import Jobs
from app.settings import Settings


@pytest.fixture
def store(settings: Settings, jobs: Jobs, keys: Keys, monkeypatch: pytest.MonkeyPatch) -> KeyStore:
    monkeypatch.setenv("REDIS_URL", str(settings.redis_url))
    monkeypatch.setenv("REELWORD_NAMESPACE", keys.namespace)
    return KeyStore(jobs.server, keys)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["keys", *arguments])


def test_a_key_is_made_and_printed_once(store: KeyStore) -> None:
    made = run("add", "ada")
    assert (made.exit_code, "not shown again" in made.stderr) == (0, True)
    token = made.stdout.strip()
    parts = read_token(token)
    assert parts is not None
    key = store.all()[parts[0]]
    assert key.is_proved_by(parts[1])
    assert (key.name, key.scopes, key.expires_at) == ("ada", ("read", "write"), None)
    assert (key.rate, key.read_rate, key.concurrent, key.high) == ("300/minute", "3000/minute", 200, False)
    listed = run("list").stdout + run("list", "--json").stdout
    assert "ada" in listed
    assert parts[1] not in listed
    assert key.sha256 not in listed


def test_a_key_is_made_with_terms(store: KeyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    limits = ["--rate", "60/minute", "--read-rate", "1000/hour", "--concurrent", "4"]
    limits += ["--max-upload-bytes", "1000000", "--max-seconds", "90.5", "--max-pixels", "8294400"]
    made = run("add", "ada", "--scope", "read", "--scope", "admin", "--expires", "30d", *limits)
    assert made.exit_code == 0, made.output
    (key,) = store.all().values()
    assert key.scopes == ("read", "admin")
    assert (key.rate, key.read_rate, key.concurrent) == ("60/minute", "1000/hour", 4)
    assert (key.max_upload_bytes, key.max_seconds, key.max_pixels) == (1_000_000, 90.5, 8_294_400)
    assert key.expires_at == pytest.approx(time.time() + 30 * 86400, abs=60)
    (listed,) = json.loads(run("list", "--json").stdout)
    assert listed["rate"] == "60/minute"
    assert "4 jobs at once" in re.sub(r"\s+", " ", run("list").stdout)


def test_limits_are_lifted_by_name(store: KeyStore) -> None:
    assert (
        run("add", "ada", "--rate", "none", "--read-rate", "none", "--concurrent", "none", "--high").exit_code
        == 0
    )
    (key,) = store.all().values()
    assert (key.rate, key.read_rate, key.concurrent, key.high) == (None, None, None, True)


def test_a_webhook_secret_of_its_own_is_shown_once(store: KeyStore) -> None:
    token, secret = run("add", "ada", "--webhook-secret").stdout.split()
    (key,) = store.all().values()
    assert (read_token(token) or ("",))[0] == key.id
    assert key.webhook_secret == secret
    assert secret.startswith("whsec_")
    assert secret not in repr(key) + run("list").stdout + run("list", "--json").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--scope", "root"], "--scope"),
        (["--rate", "often"], "--rate: give a rate as 60/minute"),
        (["--concurrent", "0"], "--concurrent"),
        (["--expires", "soon"], "--expires: soon is no duration"),
    ],
)
def test_terms_that_mean_nothing_are_refused_by_name(
    store: KeyStore, arguments: list[str], said: str
) -> None:
    refused = run("add", "ada", *arguments)
    assert (refused.exit_code, said in refused.stderr) == (2, True), refused.output
    assert store.all() == {}


def test_no_two_keys_have_one_name(store: KeyStore) -> None:
    assert run("add", "ada").exit_code == 0
    refused = run("add", "ada")
    assert (refused.exit_code, "There is a key called ada" in refused.stderr) == (2, True)
    assert len(store.all()) == 1


def test_keys_are_revoked_by_name_and_by_id(store: KeyStore) -> None:
    for name in ("ada", "eve", "bob"):
        run("add", name)
    (bob,) = (key for key in store.all().values() if key.name == "bob")
    revoked = run("revoke", "ada", bob.id)
    assert (revoked.exit_code, [key.name for key in store.all().values()]) == (0, ["eve"])
    missing = run("revoke", "ada")
    assert (missing.exit_code, "no key called ada" in missing.stderr) == (1, True)


def test_an_empty_list_says_how_to_make_one(store: KeyStore) -> None:
    assert "keys add NAME" in run("list").stdout
    assert run("list", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("12h", 43200), ("30d", 2_592_000), ("1w", 604_800)]
)
def test_durations(text: str, seconds: int) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "0d", "-1d", "1y", "1.5h", "d"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError):
        seconds_of(text)
