"""The fits of labelled captioners against what made their data, and a captioner fitted from end to end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from lab.labelled import fit
from lab.labelled.fit import CaptionedFrames, SentenceVectors, drop_quotations, fit_captioner, fit_words
from lab.labelled.sentences import WrittenLine
from models.captioners.registry import captioner_class
from models.labels.expected_meaning import CLASS_NAMES
from models.vocabulary import EOS, Vocabulary, split_words
from tests.models.tiny import randomised, stats_config
from training.scores.sentence_vectors import SentenceEncoder

WORDS = ["a", "man", "dog", "rides", "horse", "wave"]
CAPTIONS = ["a man rides a horse", "a dog rides a wave", "a man", "a horse", "a dog", "wave", "rides"]
WIDTH = 8


class SumEncoder(SentenceEncoder):
    """Sums a vector of each word, once, so that a fit can be exact."""

    def __init__(self) -> None:
        pass

    def encode(self, sentences: Sequence[str]) -> NDArray[np.float32]:
        return np.stack([self._sum(text) for text in sentences])

    def _sum(self, text: str) -> NDArray[np.float32]:
        words = sorted(set(split_words(text))) or [text]
        vectors = [np.random.default_rng(abs(sum(map(ord, word)))).normal(size=WIDTH) for word in words]
        return np.asarray(np.sum(vectors, 0) / np.sqrt(len(words)), np.float32)


@pytest.fixture
def vectors() -> SentenceVectors:
    return SentenceVectors(SumEncoder())


def test_words_are_fitted_to_sentences_that_they_make(vectors: SentenceVectors) -> None:
    vocabulary = Vocabulary(WORDS)
    words = fit_words(vocabulary, CAPTIONS * 200, vectors)
    expected = vectors.find(WORDS)
    assert torch.allclose(words[3:], expected, atol=0.02)


def test_ridge_finds_the_line_behind_its_points() -> None:
    chance = torch.Generator().manual_seed(1)
    inputs, weights = torch.randn(200, 4, generator=chance), torch.randn(4, 3, generator=chance)
    solved, bias = fit.solve_ridge(inputs, inputs @ weights + 2, 1e-4)
    assert torch.allclose(solved, weights, atol=1e-4)
    assert torch.allclose(bias, torch.full((3,), 2.0), atol=1e-4)


def test_quotations_are_dropped_whatever_their_signs() -> None:
    assert drop_quotations(["a man rides", "a dog sits"], ["A man rides!", "a dog"]) == ["a dog sits"]


def test_a_class_is_what_was_written_of_it_or_its_name(vectors: SentenceVectors) -> None:
    lines = [
        WrittenLine((5,), (("a man rides", "a dog rides"), ("a horse",))),
        WrittenLine((5,), (("wave",),)),
    ]
    described = fit.describe_classes(lines, vectors)
    first = (vectors.average([["a man rides", "a dog rides"], ["a horse"]])).mean(0)
    assert torch.allclose(described[5], (first + vectors.find(["wave"])[0]) / 2)
    assert torch.equal(described[6], vectors.find([CLASS_NAMES[6]])[0])


def test_a_fitted_captioner_writes_as_before_and_recalls_what_was_written(
    vectors: SentenceVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit, "WIDTH", WIDTH)
    monkeypatch.setattr(fit, "read_lines", lambda: [WrittenLine((0,), (("a cat climbs a tree",),))])
    writer = randomised(captioner_class("stats")(stats_config(), Vocabulary(WORDS)), 1)
    places, width = 49, writer.inputs[0].width
    chance = torch.Generator().manual_seed(2)
    seen = torch.randn(len(CAPTIONS), width, generator=chance)
    frames = CaptionedFrames(seen, [(text,) for text in CAPTIONS], torch.zeros(places, width))
    captioner = fit_captioner(writer, frames, CAPTIONS, ["a cat climbs a tree"], vectors)
    assert captioner.vocabulary.words[: len(writer.vocabulary)] == writer.vocabulary.words
    sentence = captioner.vocabulary.encode(split_words("a cat climbs a tree"))
    assert [word for word in captioner.remembered[0].tolist() if word != EOS] == sentence
    assert captioner.written_of.tolist() == [[0, 0]]
    old, new = writer.state_dict(), captioner.writer.state_dict()
    assert all(torch.equal(new[name][: len(value)], value) for name, value in old.items() if value.dim())
