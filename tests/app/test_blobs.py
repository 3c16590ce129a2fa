"""Blobs appear whole or not at all, in a directory and at an fsspec URL."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path

import pytest

from app.blobs import BlobMissingError, Blobs


@pytest.fixture(params=["directory", "url"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    url = str(tmp_path / "blobs") if request.param == "directory" else f"memory://{uuid.uuid4().hex}"
    return Blobs(url, tmp_path / "staging")


def test_what_is_written_is_read(blobs: Blobs) -> None:
    blobs.write("results/a/attention.json", b"{}")
    blobs.write("results/a/attention.json", b"{1}")
    assert blobs.read("results/a/attention.json") == b"{1}"
    assert blobs.exists("results/a/attention.json")
    assert list(blobs.staging.iterdir()) == []


def test_a_staged_file_moves_to_its_key(blobs: Blobs) -> None:
    file = blobs.new_file()
    file.write_bytes(b"video")
    blobs.adopt(file, "uploads/a")
    assert not file.exists()
    with blobs.local("uploads/a") as path:
        assert path.read_bytes() == b"video"
    assert list(blobs.staging.iterdir()) == []


def test_what_is_not_there_says_so(blobs: Blobs) -> None:
    with pytest.raises(BlobMissingError, match="uploads/none"):
        blobs.read("uploads/none")
    with pytest.raises(BlobMissingError), blobs.local("uploads/none"):
        pass
    assert not blobs.exists("uploads/none")


def test_removing_takes_all_below_a_key_and_may_be_repeated(blobs: Blobs) -> None:
    blobs.write("results/a/frames/0.jpg", b"0")
    blobs.write("results/b/frames/0.jpg", b"0")
    blobs.remove("results/a")
    blobs.remove("results/a")
    assert not blobs.exists("results/a/frames/0.jpg")
    assert blobs.exists("results/b/frames/0.jpg")


@pytest.mark.parametrize("key", ["", "/etc/passwd", "../out", "results/../../out"])
def test_keys_stay_below_the_root(blobs: Blobs, key: str) -> None:
    with pytest.raises(ValueError, match="not a blob key"):
        blobs.read(key)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "results").write_bytes(b"a file where a folder should be")
    with pytest.raises(OSError, match="results"):
        blobs.write("results/a", b"data")
    assert list(blobs.staging.iterdir()) == []


def test_sweeping_takes_what_a_killed_server_left(blobs: Blobs) -> None:
    old, new = blobs.new_file(), blobs.new_file()
    for file in (old, new):
        file.write_bytes(b"half")
    long_ago = time.time() - 1000
    os.utime(old, (long_ago, long_ago))
    assert blobs.sweep(older_than=500) == 1
    assert list(blobs.staging.iterdir()) == [new]
