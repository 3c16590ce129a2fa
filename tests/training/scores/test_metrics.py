from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.training import coco_golden
from tests.training.fake_java import fake_java
from training.scores.bootstrap import compare
from training.scores.java import Java
from training.scores.meteor import Meteor
from training.scores.metrics import (
    COCO_METRICS,
    METRICS,
    ScoreReport,
    compare_with_shuffled,
    evaluate,
    tokenize_captions,
)

WITHOUT_METEOR = tuple(name for name in COCO_METRICS if name != "meteor")


def agrees(report: ScoreReport, corpus: coco_golden.Corpus) -> None:
    for name, metric in report.metrics.items():
        assert metric.corpus / 100 == pytest.approx(corpus.scores[name], abs=1e-6), name
        want = [item.scores[name] for item in corpus.items.values()]
        assert np.allclose(metric.items / 100, want, rtol=0, atol=1e-6), name


def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.scores.java._list_installed", list)


def test_everything_with_no_java_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    corpus = coco_golden.small()
    report = evaluate(corpus.hypotheses, corpus.references, COCO_METRICS)
    assert tuple(report.metrics) == COCO_METRICS
    agrees(report, corpus)
    assert report.notes["tokenizer"].startswith("Stanford, openjdk")


@pytest.mark.parametrize("name", ["all", "plain", "one_item"])
def test_shared_golden(name: str) -> None:
    corpus = coco_golden.shared(name)
    report = evaluate(corpus.hypotheses, corpus.references, WITHOUT_METEOR)
    cannot = {"cider"} if name == "one_item" else set()  # every word is in every item: COCO's gives 0
    assert tuple(report.metrics) == tuple(metric for metric in WITHOUT_METEOR if metric not in cannot)
    agrees(report, corpus)


def test_without_java_only_meteor_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_java(monkeypatch)
    corpus = coco_golden.small()
    report = evaluate(corpus.hypotheses, corpus.references, COCO_METRICS, resamples=50)
    assert tuple(report.metrics) == WITHOUT_METEOR
    agrees(report, corpus)
    assert report.notes["meteor"].startswith("not computed: No Java")
    assert report.to_json()["metrics"]["meteor"] is None
    assert "Java does not run" in report.notes["tokenizer"]


def test_a_java_that_hangs_costs_meteor_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.scores.tokenizer._START_SECONDS", 0.2)
    java = fake_java(tmp_path, "exec sleep 600")
    corpus = coco_golden.small()
    with Meteor(java, start_seconds=0.2) as meteor:
        report = evaluate(corpus.hypotheses, corpus.references, COCO_METRICS, meteor=meteor, resamples=50)
    assert tuple(report.metrics) == WITHOUT_METEOR
    agrees(report, corpus)
    assert report.notes["meteor"] == (
        "not computed: METEOR gave no answer within 0 s: run this again when the machine is idle."
    )
    assert "gave no answer" in report.notes["tokenizer"]


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> ScoreReport:
    without_java(monkeypatch)
    corpus = coco_golden.small()
    return evaluate(corpus.hypotheses, corpus.references, COCO_METRICS, resamples=200)


def test_json_of_a_report(report: ScoreReport) -> None:
    document = json.loads(json.dumps(report.to_json()))
    assert set(document) == {"metrics", "intervals", "n", "notes"}
    assert tuple(document["metrics"]) == COCO_METRICS
    assert document["n"] == len(report.captions.ids) < 30
    assert "mean little with fewer than 30" in document["notes"]["items"]
    for name, (low, high) in document["intervals"].items():
        assert low < document["metrics"][name] < high


def test_table_of_a_report(report: ScoreReport) -> None:
    console = Console(file=io.StringIO(), width=200)
    console.print(report.table())
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert f"{report.metrics['cider'].corpus:.1f}" in text
    assert "not computed: No Java" in text
    assert f"{report.n} items" in text


@pytest.mark.parametrize(
    "references",
    [
        {"one": ["a dog runs"]},
        {"one": ["a dog runs", "a cat"], "two": ["a cat", "a dog runs"]},
        {"one": [""], "two": ["a dog"]},
        {"one": ["a cat"], "two": ["a dog"]},
    ],
    ids=["one item", "the same references", "one of nothing", "two items"],
)
def test_cider_that_cannot_be_computed_is_null_with_a_note(references: dict[str, list[str]]) -> None:
    report = evaluate({name: texts[0] for name, texts in references.items()}, references, ["bleu1", "cider"])
    document = report.to_json()
    if len({tuple(sorted(each)) for each in references.values()}) == 1:
        assert document["metrics"]["cider"] is None
        assert "cider" not in document["intervals"]
        assert "weighs nothing" in document["notes"]["cider"]
    else:
        assert document["metrics"]["cider"] > 0
        assert "cider" not in document["notes"]


def test_two_sets_of_captions_are_compared_in_pairs(report: ScoreReport) -> None:
    corpus = coco_golden.small()
    cut = {name: " ".join(text.split()[:-1]) for name, text in corpus.hypotheses.items()}
    worse = evaluate(cut, corpus.references, ["bleu4"], resamples=1)
    result = compare(report.metrics["bleu4"], worse.metrics["bleu4"], resamples=200)
    assert result.difference == pytest.approx(report.metrics["bleu4"].corpus - worse.metrics["bleu4"].corpus)
    assert result.interval[0] < result.difference < result.interval[1]


def test_captions_of_the_picture_beat_the_same_ones_shuffled() -> None:
    animals = ["dog", "cat", "horse", "bird", "cow", "sheep"]
    references = {name: [f"a {name} runs in the {name} park", f"one {name} is running"] for name in animals}
    seen = tokenize_captions({name: f"a {name} runs in the park" for name in animals}, references, None)
    result = compare_with_shuffled(seen, shuffles=20)
    assert result.interval[0] > 0
    assert result.share == 1
    assert result == compare_with_shuffled(seen, shuffles=20)
    blind = tokenize_captions(dict.fromkeys(animals, "a dog runs in the park"), references, None)
    assert compare_with_shuffled(blind, shuffles=20).difference == pytest.approx(0)
    with pytest.raises(ValueError, match="two items"):
        compare_with_shuffled(tokenize_captions({"dog": "a"}, {"dog": ["a"]}, None))


def test_no_item_keeps_its_caption_in_a_shuffle() -> None:
    """Each caption fits its own item and no other: were one kept, the difference would be less."""
    words = [f"w{n}" for n in range(7)]
    own = {word: " ".join([word] * 4) for word in words}
    captions = tokenize_captions(own, {word: [text] for word, text in own.items()}, None)
    result = compare_with_shuffled(captions, shuffles=50)
    assert result.difference == pytest.approx(1000)


@pytest.mark.parametrize(
    ("hypotheses", "references", "metrics", "message"),
    [
        ({}, {}, METRICS, "Nothing to score"),
        ({"a": "x"}, {"a": ["x"], "b": ["x"]}, METRICS, "not both, such as 'b'"),
        ({"a": "x"}, {"a": []}, METRICS, "'a' has no references"),
        ({"a": "x"}, {"a": ["x"]}, ["wmd"], "Unknown metric 'wmd'"),
    ],
)
def test_what_cannot_be_scored_is_named(
    hypotheses: dict[str, str], references: dict[str, list[str]], metrics: list[str], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate(hypotheses, references, metrics)


def test_a_given_java_is_used(tmp_path: Path) -> None:
    java: Java = fake_java(tmp_path, "tr a-z A-Z")
    report = evaluate({"a": "dog"}, {"a": ["dog"]}, ["bleu1"], java=java, resamples=1)
    assert report.captions.hypotheses == ("DOG",)
