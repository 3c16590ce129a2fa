"""Blobs appear whole or not at all, in a directory and at an fsspec URL."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from app.jobs.blobs import BlobMissingError, Blobs


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
    with blobs.staged() as file:
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


def left_over(blobs: Blobs, age: float) -> Path:
    """A staged file whose writer was killed: nobody holds its lock."""
    with blobs.staged() as file:
        pass
    file.write_bytes(b"half")
    touched = time.time() - age
    os.utime(file, (touched, touched))
    return file


def test_sweeping_takes_what_a_killed_server_left(blobs: Blobs) -> None:
    old, new = left_over(blobs, 1000), left_over(blobs, 0)
    assert blobs.sweep(older_than=500) == 1
    assert not old.exists()
    assert list(blobs.staging.iterdir()) == [new]


def test_sweeping_takes_what_a_clock_set_back_left(blobs: Blobs) -> None:
    from_the_future = left_over(blobs, -1000)
    assert blobs.sweep(older_than=500) == 1
    assert not from_the_future.exists()


def test_sweeping_leaves_what_is_being_written_however_slowly(blobs: Blobs) -> None:
    long_ago = time.time() - 1000
    with blobs.staged() as file:
        file.write_bytes(b"half")  # opened, written and closed while the lock is held
        os.utime(file, (long_ago, long_ago))
        assert blobs.sweep(older_than=500) == 0
        assert file.exists()
    assert list(blobs.staging.iterdir()) == []


def test_sweeping_takes_what_a_killed_process_left(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from app.jobs.blobs import Blobs\n"
        "with Blobs(sys.argv[1], Path(sys.argv[2])).staged() as file:\n"
        "    print(file, flush=True); time.sleep(600)"
    )
    blobs = Blobs(str(tmp_path / "blobs"), tmp_path / "staging")
    command = [sys.executable, "-c", program, str(tmp_path / "blobs"), str(blobs.staging)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        file = Path(writer.stdout.readline().strip())
        assert blobs.sweep(older_than=0) == 0
        writer.kill()
    assert file.exists()
    assert blobs.sweep(older_than=0) == 1


def test_names_and_sizes_below_a_key(blobs: Blobs) -> None:
    assert blobs.names("results") == set()
    blobs.write("results/a/frames/0.jpg", b"0123")
    blobs.write("results/a/attention.json", b"01")
    blobs.write("results/b/attention.json", b"0")
    blobs.write("uploads/c", b"012")
    assert blobs.names("results") == {"a", "b"}
    assert blobs.names("uploads") == {"c"}
    blobs.write("uploads/d", bytes(4097))
    assert blobs.sizes("results") == {"a": 2 * 4096, "b": 4096}  # a file takes whole blocks
    assert blobs.sizes("results", depth=2) == dict.fromkeys(
        ("a/frames", "a/attention.json", "b/attention.json"), 4096
    )
    assert blobs.sizes("uploads") == {"c": 4096, "d": 2 * 4096}


def test_a_folder_on_another_disk_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several machines mount one folder for the blobs; what is being written lies on a disk of their own."""
    blobs, replace = Blobs(str(tmp_path / "mounted"), tmp_path / "staging"), os.replace

    def not_across(source: str | Path, target: str | Path) -> None:
        if Path(source).is_relative_to(tmp_path / "staging"):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, target)

    monkeypatch.setattr("os.replace", not_across)
    blobs.write("uploads/a", b"video")
    assert blobs.read("uploads/a") == b"video"
    assert blobs.names("uploads") == {"a"}
    (file,) = (tmp_path / "mounted" / "uploads").iterdir()
    (tmp_path / "plain").touch()
    assert file.name == "a"
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode  # other users' workers read it
    assert list(blobs.staging.iterdir()) == []


@pytest.mark.parametrize("has_links", [True, False])
def test_a_copy_outlives_what_it_was_made_of(
    blobs: Blobs, monkeypatch: pytest.MonkeyPatch, has_links: bool
) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    if not has_links:
        monkeypatch.setattr("app.jobs.blobs.os.link", link)
    blobs.write("uploads/a", b"video")
    blobs.copy("uploads/a", "uploads/b")
    blobs.remove("uploads/a")
    assert blobs.read("uploads/b") == b"video"
    assert blobs.names("uploads") == {"b"}
    with pytest.raises(BlobMissingError):
        blobs.copy("uploads/a", "uploads/c")
    assert blobs.names("uploads") == {"b"}


def test_parts_of_a_blob_are_read(blobs: Blobs) -> None:
    blobs.write("uploads/a", b"0123456789")
    assert blobs.size("uploads/a") == 10
    assert b"".join(blobs.pieces("uploads/a", 8, 50)) == b"89"
    assert b"".join(blobs.pieces("uploads/a", 3, 9)) == b"345678"
    for read in (lambda: blobs.size("no"), lambda: list(blobs.pieces("no", 0, 1))):
        with pytest.raises(BlobMissingError):
            read()
