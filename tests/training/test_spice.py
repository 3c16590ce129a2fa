"""The protocol around SPICE's jar; its parser is too large to install for a test, so a Java here plays it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.training.fake_java import fake_java
from training import spice as module
from training.java import JavaError
from training.metrics import METRICS, evaluate
from training.spice import JAR, PARSER, missing_jars, spice

#: Scores each caption by the share of its words that its first reference has, out of order.
PLAYER = """
import json, sys
asked, answered = sys.argv[1], sys.argv[3]
def f(entry):
    words = entry["test"].split()
    return sum(word in entry["refs"][0].split() for word in words) / len(words) if words else float("nan")
entries = [{"image_id": e["image_id"], "scores": {"All": {"f": f(e)}}} for e in json.load(open(asked))]
json.dump(entries[::-1], open(answered, "w"))
"""
HYPOTHESES = ["a dog runs", "", 'größe "x"\ttab']
REFERENCES = [["a dog sits", "it"], ["a cat"], ["größe"]]


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    folder = tmp_path / "spice of life"
    (folder / "lib").mkdir(parents=True)
    for name in (JAR, *(f"lib/{name}" for name in PARSER)):
        (folder / name).touch()
    return folder


def playing(tmp_path: Path, jars: Path) -> str:
    """Shell that runs PLAYER with the jar's arguments, once it is sure of the jar."""
    player = tmp_path / "player.py"
    player.write_text(PLAYER)
    return (
        'while [ "$1" != -jar ]; do shift; done\n'
        f'[ "$2" = "{jars / JAR}" ] || exit 3\nshift 2\nexec "{sys.executable}" "{player}" "$@"'
    )


def test_scores_come_back_in_the_order_of_the_captions(tmp_path: Path, jars: Path) -> None:
    java = fake_java(tmp_path, playing(tmp_path, jars))
    scores = spice(java, HYPOTHESES, REFERENCES, jars)
    np.testing.assert_allclose(scores, [2 / 3, 0, 1 / 3])


def test_a_report_has_it_where_its_jars_are(
    tmp_path: Path, jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "scorer_file", lambda *_: jars)
    java = fake_java(tmp_path, playing(tmp_path, jars))
    report = evaluate({"a": "a dog runs"}, {"a": ["a dog sits"]}, ["cider", "spice"], java=java, resamples=2)
    assert report.metrics["spice"].corpus == pytest.approx(200 / 3)
    assert report.to_json()["metrics"]["spice"] == pytest.approx(200 / 3)


def test_without_its_parser_it_is_left_out_or_said_to_be(tmp_path: Path) -> None:
    java = fake_java(tmp_path, "cat")
    if not missing_jars():
        pytest.skip("SPICE's parser is installed")
    report = evaluate({"a": "dog"}, {"a": ["dog"]}, ["bleu1", "spice"], java=java, resamples=2)
    assert tuple(report.metrics) == ("bleu1",)
    assert report.notes["spice"].startswith(f"not computed: {PARSER[0]} and {PARSER[1]} of stanford")
    assert report.to_json()["metrics"]["spice"] is None
    assert "spice" not in METRICS


@pytest.mark.parametrize(
    ("behaviour", "message"),
    [
        ("exec sleep 600", "gave no answer within"),
        ("echo cannot parse >&2; exit 1", "cannot parse"),
        ("exit 0", "could not be read"),
    ],
)
def test_a_jar_that_hangs_or_fails_is_a_sentence(
    tmp_path: Path, jars: Path, behaviour: str, message: str
) -> None:
    with pytest.raises(JavaError, match=message):
        spice(fake_java(tmp_path, behaviour), HYPOTHESES, REFERENCES, jars, seconds=0.5)


def test_the_question_is_plain_json() -> None:
    document = module._document(HYPOTHESES, REFERENCES)
    assert json.loads(json.dumps(document))[2] == {
        "image_id": 2,
        "test": HYPOTHESES[2],
        "refs": ["größe"],
    }
