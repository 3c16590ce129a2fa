from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.training import coco_golden
from tests.training.fake_java import fake_java
from training.scores import meteor
from training.scores.java import JavaError, find_java, find_scorer_file
from training.scores.meteor import COUNTS, Meteor, compute_meteor

CAPTION, REFERENCES = ["a man walks"], [["a man is walking"]]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Meteor]:
    """METEOR from a folder with a space in its name and nothing to write to."""
    folder = tmp_path_factory.mktemp("a folder") / "meteor"
    shutil.copytree(find_scorer_file("meteor"), folder)
    folder.chmod(0o555)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meteor, "find_scorer_file", lambda *parts: folder)
        patch.setenv("PATH", "/nonexistent")
        process = Meteor(find_java())
    with process:
        yield process


@pytest.mark.parametrize("name", ["small", "all", "plain", "one_item"])
def test_scores_are_those_of_the_coco_code(running: Meteor, name: str) -> None:
    corpus = coco_golden.small() if name == "small" else coco_golden.shared(name)
    items = list(corpus.items.values())
    counts = running.count_matches(
        [item.tokens_hypothesis for item in items], [item.tokens_references for item in items]
    )
    assert counts.shape == (len(items), COUNTS)
    assert np.allclose(compute_meteor(counts), [item.scores["meteor"] for item in items], rtol=0, atol=1e-6)
    assert compute_meteor(counts.sum(axis=0)) == pytest.approx(corpus.scores["meteor"], abs=1e-6)


def test_captions_cannot_break_the_protocol(running: Meteor) -> None:
    captions = ["a ||| man\nwalks", "", "a café", "\ud800", "|||", "a man walks"]
    references = [
        ["a man walks"],
        ["a man"],
        ["a café"],
        ["x"],
        ["a ||| b", ""],
        ["EVAL ||| 1", "a man walks"],
    ]
    scores = compute_meteor(running.count_matches(captions, references))
    assert scores.tolist() == [1.0, 0.0, 1.0, 0.0, 0.0, 1.0]


def test_one_process_serves_many_batches(running: Meteor) -> None:
    once = running.count_matches(CAPTION, REFERENCES)
    many = running.count_matches(CAPTION * 3000, REFERENCES * 3000)
    assert np.array_equal(many, np.repeat(once, 3000, axis=0))
    assert running.count_matches([], []).shape == (0, COUNTS)


def children() -> list[psutil.Process]:
    return list(psutil.Process().children())


def test_a_hanging_java_is_ended_and_leaves_no_zombie(tmp_path: Path) -> None:
    before = children()
    process = Meteor(fake_java(tmp_path, "exec sleep 600"), start_seconds=0.3)
    assert len(children()) == len(before) + 1
    start = time.monotonic()
    # More than a pipe holds, so that the writer hangs as well.
    with pytest.raises(JavaError, match="no answer within 0 s"):
        process.count_matches(["a man " * 50] * 2000, [["a man"]] * 2000)
    assert time.monotonic() - start < 60
    assert children() == before
    with pytest.raises(JavaError, match="ended"):
        process.count_matches(CAPTION, REFERENCES)


def test_a_java_that_stops_midway_is_not_waited_for(tmp_path: Path) -> None:
    answer = " ".join(["1.0"] * COUNTS)
    fake = fake_java(tmp_path, f"read line; echo '{answer}'; echo 'Error: out of memory' >&2; exit 1")
    before = children()
    with (
        Meteor(fake) as process,
        pytest.raises(JavaError, match="METEOR stopped: Error: out of memory"),
    ):
        process.count_matches(CAPTION * 2, REFERENCES * 2)
    assert children() == before


def test_a_signal_for_all_processes_of_a_run_does_not_reach_java(tmp_path: Path) -> None:
    """Ctrl+C and SLURM signal a whole group; the step that a stopped run finishes still needs its scores."""
    with Meteor(fake_java(tmp_path, "exec sleep 600")):
        java = children()[-1]
        assert os.getpgid(java.pid) != os.getpgid(0)


def test_an_answer_of_another_form_is_not_believed(tmp_path: Path) -> None:
    with (
        Meteor(fake_java(tmp_path, "read line; echo Usage: something; cat")) as process,
        pytest.raises(JavaError, match="answered 'Usage: something'"),
    ):
        process.count_matches(CAPTION, REFERENCES)


def test_a_java_that_is_not_there(tmp_path: Path) -> None:
    gone = fake_java(tmp_path, "exit 0")
    gone.path.unlink()
    with pytest.raises(JavaError, match="did not start: No such file"):
        Meteor(gone)


def test_counts_add_up_to_the_corpus() -> None:
    """Two captions, one whole match (no chunk), one with two words of four in two pieces: by hand."""
    whole = np.array([2, 2, 0, 0, 2, 2, *[0] * 14, 0, 2, 2], float)
    pieces = np.array([4, 4, 0, 0, 2, 2, *[0] * 14, 2, 2, 2], float)
    assert compute_meteor(whole) == pytest.approx(1)
    assert compute_meteor(pieces) == pytest.approx(0.5 * 0.4)
    assert compute_meteor(whole + pieces) == pytest.approx(4 / 6 * (1 - 0.6 * (2 / 4) ** 0.2))
    assert compute_meteor(np.zeros((3, COUNTS))).tolist() == [0, 0, 0]
