"""Settings: names, defaults, and where they come from."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings import Settings


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
