"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest

from extractors.files import atomic_write


def test_it_takes_the_place_of_what_was_there_and_anybody_may_read_it(tmp_path: Path) -> None:
    file = tmp_path / "made" / "clip.json"
    for text in ("first", "second"):
        with atomic_write(file) as unfinished:
            assert unfinished.parent == file.parent
            unfinished.write_text(text)
        assert file.read_text() == text
    assert [each.name for each in file.parent.iterdir()] == ["clip.json"]
    assert file.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("stopped_by", [KeyboardInterrupt, OSError])
def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, stopped_by: type[BaseException]) -> None:
    file = tmp_path / "clip.json"
    file.write_text("old")
    with contextlib.suppress(stopped_by), atomic_write(file) as unfinished:
        unfinished.write_text("half")
        raise stopped_by
    assert [each.name for each in tmp_path.iterdir()] == ["clip.json"]
    assert file.read_text() == "old"


def test_two_may_write_the_same_file_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "clip.json"
    with atomic_write(file) as one:
        with atomic_write(file) as other:
            one.write_text("one")
            other.write_text("other")
        assert file.read_text() == "other"
    assert file.read_text() == "one"


def test_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, flushed = tmp_path / "clip.json", []

    def fsync(handle: int) -> None:
        flushed.append((os.fstat(handle).st_size, file.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_write(file) as unfinished:
        unfinished.write_text("three")
    assert flushed == [(5, False)]


def test_a_writer_may_put_a_file_of_its_own_there(tmp_path: Path) -> None:
    file = tmp_path / "clip.json"
    with atomic_write(file) as unfinished:
        (tmp_path / "own").write_text("own")
        (tmp_path / "own").chmod(0o600)
        (tmp_path / "own").replace(unfinished)
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("own", 0o644)
