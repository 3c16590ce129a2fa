from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pytest

from tests.training import coco_golden
from training.scores.cider import CiderD

WORDS = ["a", "man", "dog", "ball", "park", "red", "blue", "runs", "throws", "in", "on", "with", "the", "and"]


def n_grams(words: Sequence[str]) -> list[Counter[tuple[str, ...]]]:
    return [Counter(zip(*(words[place:] for place in range(order)), strict=False)) for order in (1, 2, 3, 4)]


def slow_cider_d(
    references: Mapping[str, Sequence[Sequence[str]]], name: str, hypothesis: Sequence[str]
) -> float:
    """The equations as the COCO code reads them, one n-gram at a time."""
    documents: Counter[tuple[str, ...]] = Counter()
    for captions in references.values():
        documents.update(set(chain.from_iterable(chain.from_iterable(map(n_grams, captions)))))

    def vectors(words: Sequence[str]) -> list[dict[tuple[str, ...], float]]:
        return [
            {
                gram: n * (math.log(len(references)) - math.log(max(1, documents[gram])))
                for gram, n in counts.items()
            }
            for counts in n_grams(words)
        ]

    def norm(vector: Mapping[tuple[str, ...], float]) -> float:
        return math.sqrt(sum(weight**2 for weight in vector.values()))

    total = 0.0
    for reference in references[name]:
        similarity = 0.0
        for ours, theirs in zip(vectors(hypothesis), vectors(reference), strict=True):
            dot = sum(min(w, theirs[gram]) * theirs[gram] for gram, w in ours.items() if gram in theirs)
            if norm(ours) and norm(theirs):
                similarity += dot / (norm(ours) * norm(theirs)) / 4
        bigrams = max(0, len(hypothesis) - 1) - max(0, len(reference) - 1)
        total += similarity * math.exp(-(bigrams**2) / 72)
    return 10 * total / len(references[name])


def random_corpus(seed: int, items: int) -> tuple[dict[str, list[list[str]]], list[str], list[list[str]]]:
    generator = np.random.default_rng(seed)

    def caption(shortest: int) -> list[str]:
        return list(generator.choice(WORDS, generator.integers(shortest, 12)))

    references = {f"v{item}": [caption(1) for _ in range(generator.integers(1, 6))] for item in range(items)}
    ids = [str(name) for name in generator.choice(list(references), 60)]
    return references, ids, [caption(0) for _ in ids]


@pytest.mark.parametrize("seed", [0, 1])
def test_agrees_with_the_equations_caption_by_caption(seed: int) -> None:
    references, ids, hypotheses = random_corpus(seed, items=12)
    hypotheses[0] = ["unheard", "of", "words", "unheard", "of", "words"]
    hypotheses[1] = references[ids[1]][0]
    want = [slow_cider_d(references, name, words) for name, words in zip(ids, hypotheses, strict=True)]
    assert np.allclose(CiderD(references).score(ids, hypotheses), want, rtol=0, atol=1e-12)


def test_word_ids_score_as_their_words_do() -> None:
    references, ids, hypotheses = random_corpus(2, items=8)
    number = {word: index + 3 for index, word in enumerate(WORDS)}
    by_id = {
        name: [[number[w] for w in caption] for caption in captions] for name, captions in references.items()
    }
    got = CiderD(by_id).score(
        ids, [np.array([number[w] for w in words], int).tolist() for words in hypotheses]
    )
    assert np.array_equal(got, CiderD(references).score(ids, hypotheses))


def test_a_caption_scores_the_same_alone_and_in_a_batch_and_twice() -> None:
    references, ids, hypotheses = random_corpus(3, items=10)
    scorer = CiderD(references)
    together = scorer.score(ids, hypotheses)
    alone = [scorer.score([name], [words])[0] for name, words in zip(ids, hypotheses, strict=True)]
    assert np.allclose(together, alone, rtol=0, atol=1e-12)


def test_new_words_do_not_disturb_the_codes_of_old_ones() -> None:
    references, ids, hypotheses = random_corpus(4, items=10)
    scorer = CiderD(references)
    before = scorer.score(ids, hypotheses)
    scorer.score(["v0"], [[f"new{i}" for i in range(5000)]])
    assert np.array_equal(scorer.score(ids, hypotheses), before)


def test_the_end_counts_as_one_more_word() -> None:
    references, ids, hypotheses = random_corpus(5, items=10)
    marked = {name: [[*caption, "</s>"] for caption in captions] for name, captions in references.items()}
    finished = [index % 3 > 0 for index in range(len(ids))]
    ended = [[*words, "</s>"] if end else words for words, end in zip(hypotheses, finished, strict=True)]
    got = CiderD(references, count_end=True).score(ids, hypotheses, finished)
    assert np.allclose(got, CiderD(marked).score(ids, ended), rtol=0, atol=1e-12)


def test_a_bad_ending_costs_only_where_the_end_counts() -> None:
    whole = ["a", "dog", "runs", "in", "a", "park"]
    cut = whole[:-1]
    references = {"park": [whole], "street": [["a", "man", "walks"]], "field": [["children", "play"]]}
    kept = CiderD(references).score(["park"] * 2, [whole, cut])
    counted = CiderD(references, count_end=True).score(["park"] * 2, [whole, cut])
    assert counted[1] / counted[0] < kept[1] / kept[0]


def test_captions_at_the_edge() -> None:
    references, _, _ = random_corpus(6, items=5)
    scorer = CiderD(references)
    assert scorer.score([], []).shape == (0,)
    assert scorer.score(["v0", "v1"], [[], ["never", "seen"]]).tolist() == [0.0, 0.0]
    assert CiderD({"only": [["a", "dog"]]}).score(["only"], [["a", "dog"]]).tolist() == [0.0]


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="'v1' has no references"):
        CiderD({"v0": [["a"]], "v1": []})
    scorer = CiderD({"v0": [["a"]], "v1": [["b"]]})
    with pytest.raises(KeyError, match="v9"):
        scorer.score(["v9"], [["a"]])
    with pytest.raises(ValueError, match="2 ids, 1 hypotheses"):
        scorer.score(["v0", "v1"], [["a"]])


def test_a_batch_of_samples_is_scored_in_milliseconds() -> None:
    generator = np.random.default_rng(7)
    words = np.minimum(generator.zipf(1.3, (2_000, 5, 11)), 6_000).tolist()
    references = {str(item): captions for item, captions in enumerate(words)}
    scorer = CiderD(references, count_end=True)
    ids = [str(item) for item in range(16) for _ in range(5)]
    samples = [references[name][0][:9] for name in ids]
    seconds = []
    for _ in range(10):
        start = time.process_time()
        scorer.score(ids, samples)
        seconds.append(time.process_time() - start)
    assert sorted(seconds)[5] < 0.02  # 2 ms on a quiet core; the bound is for a busy one


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("small", "cider"),
        ("all", "cider"),
        ("plain", "cider"),
        ("one_item", "cider"),
        ("all", "plain_cider"),
        ("plain", "plain_cider"),
    ],
)
def test_scores_are_those_of_the_coco_code(name: str, metric: str) -> None:
    corpus = coco_golden.small() if name == "small" else coco_golden.shared(name)
    references = {
        item: [tokens.split() for tokens in entry.tokens_references] for item, entry in corpus.items.items()
    }
    hypotheses = [entry.tokens_hypothesis.split() for entry in corpus.items.values()]
    got = CiderD(references, plain=metric == "plain_cider").score(list(references), hypotheses)
    want = [entry.scores[metric] for entry in corpus.items.values()]
    assert np.allclose(got, want, rtol=0, atol=1e-6)
    assert got.mean() == pytest.approx(corpus.scores[metric], abs=1e-6)
