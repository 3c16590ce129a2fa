"""Settings: names, defaults, and where they come from."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.cli.service.examination import list_settings
from app.errors import UsageError
from app.settings import Settings, load_settings
from extractors.engines.engine import default_cache


def test_every_setting_has_a_default_and_says_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PORT", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = Settings()
    assert (settings.port, settings.redis_url, settings.attempts, settings.lease_seconds) == (
        8000,
        None,
        3,
        10,
    )
    assert all(field.description for field in Settings.model_fields.values())


def test_names_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {
        "REELWORD_DATA": str(tmp_path),
        "REELWORD_BATCH_JOBS": "2",
        "REDIS_URL": "redis://there",
        "PORT": "9001",
    }
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert (settings.data, settings.batch_jobs, settings.redis_url) == (tmp_path, 2, "redis://there")
    assert settings.port == 9001
    monkeypatch.setenv("REELWORD_PORT", "9002")
    assert Settings().port == 9002
    assert settings.redis_folder == tmp_path / "redis"
    assert settings.blob_url == str(tmp_path / "blobs")


def test_secrets_are_read_from_files_of_their_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "REDIS_URL").write_text("redis://user:secret@there\n")
    (tmp_path / "REELWORD_WEBHOOK_HOSTS").write_text("hooks\n")
    monkeypatch.delenv("REDIS_URL", raising=False)
    settings = Settings(_secrets_dir=tmp_path)
    assert (settings.redis_url, settings.webhook_hosts) == ("redis://user:secret@there", ("hooks",))
    monkeypatch.setenv("REELWORD_WEBHOOK_HOSTS", "others")
    assert Settings(_secrets_dir=tmp_path).webhook_hosts == ("others",), "a variable goes first"
    (tmp_path / "own").mkdir()
    (tmp_path / "own/REDIS_URL").write_text("redis://elsewhere\n")
    assert Settings(_secrets_dir=[tmp_path, tmp_path / "own"]).redis_url == "redis://elsewhere"


def test_an_empty_variable_is_an_absent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_URL", "")
    assert Settings().redis_url is None


def test_paths_hold_wherever_a_process_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REELWORD_DATA", "here")
    assert Settings().data == tmp_path / "here"


@pytest.mark.parametrize("url", ["s3://bucket/reelword", "memory://blobs", "filecache::s3://bucket"])
def test_a_folder_of_blobs_holds_wherever_a_process_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REELWORD_BLOBS", "here")
    assert Settings().blob_url == str(tmp_path / "here")
    monkeypatch.setenv("REELWORD_BLOBS", url)
    assert Settings().blob_url == url


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REELWORD_ATTEMPTS", "0"),
        ("PORT", "70000"),
        ("REELWORD_DECODER", "vlc"),
        ("REELWORD_BATCH_JOBS", "many"),
    ],
)
def test_a_wrong_value_is_refused(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ValidationError):
        Settings()


@pytest.mark.parametrize(("beat", "lease"), [("4", None), ("0.5", "1"), (None, "1")])
def test_a_beat_that_does_not_keep_the_lease_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, beat: str | None, lease: str | None
) -> None:
    for name, value in (("REELWORD_BEAT_SECONDS", beat), ("REELWORD_LEASE_SECONDS", lease)):
        if value is not None:
            monkeypatch.setenv(name, value)
    with pytest.raises(UsageError, match=r"REELWORD_BEAT_SECONDS has a wrong value: a beat every .* at most"):
        load_settings()


def test_a_lease_of_three_beats_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_LEASE_SECONDS", "1.5")
    assert load_settings().lease_seconds == 1.5


def test_an_engine_goes_by_its_old_name_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REELWORD_ENGINE", "app.pipeline:Engine")
    assert Settings().engine == Settings.model_fields["engine"].default
    assert pkgutil.resolve_name(Settings().engine).__name__ == "Engine"


@pytest.mark.parametrize(
    ("given", "needed"),
    [
        ({}, False),
        ({"host": "localhost"}, False),
        ({"host": "127.0.0.2"}, False),
        ({"host": "::1"}, False),
        ({"host": "0.0.0.0"}, True),
        ({"host": "::"}, True),
        ({"host": "192.168.1.5"}, True),
        ({"host": "reel.example"}, True),
        ({"host": ""}, True),
        ({"trusted_proxies": "127.0.0.1"}, True),
        ({"allowed_hosts": "reel.example"}, True),
        ({"allowed_hosts": "*"}, True),
        ({"allowed_hosts": "localhost,127.0.0.2"}, False),
        ({"peer_hosts": "api"}, True),
        ({"access": "keys"}, True),
        ({"access": "open", "host": "0.0.0.0"}, False),
        ({"access": "open", "trusted_proxies": "127.0.0.1"}, False),
    ],
)
def test_keys_are_needed_off_loopback_unless_said_otherwise(given: dict[str, str], needed: bool) -> None:
    assert Settings.model_validate(given).needs_key is needed


def test_secrets_of_webhooks_are_checked_and_never_shown() -> None:
    good = "whsec_" + "c2VjcmV0" * 5
    assert Settings(webhook_secrets=f"{good}, {good}").webhook_secrets == (good, good)
    for wrong in ("secret", "whsec_", "whsec_short", f"{good},x", "whsec_" + "A" * 100):
        with pytest.raises(ValidationError, match="whsec_ and 24 to 64 random bytes"):
            Settings(webhook_secrets=wrong)
    settings = Settings(webhook_secrets=good)
    assert good not in repr(settings)
    shown = {each.name: each.value for each in list_settings(settings)}
    assert shown["REELWORD_WEBHOOK_SECRETS"] == "…"


def test_networks_are_converted_once_for_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REELWORD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    folders = {Settings(data=tmp_path / name).cache_folder for name in ("one", "other")}
    assert folders == {tmp_path / ".cache/reelword"}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert Settings().cache_folder == tmp_path / "caches/reelword" == default_cache()
    monkeypatch.setenv("REELWORD_CACHE", str(tmp_path / "networks"))
    assert Settings().cache_folder == tmp_path / "networks" == default_cache()


def test_without_a_home_they_are_kept_with_the_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("REELWORD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("os.access", lambda *_: False)
    assert Settings(data=tmp_path / "data").cache_folder == tmp_path / "data/cache"
