"""Rewards of single captions are the COCO code's scores, added up by their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.training import coco_golden
from tests.training.fake_java import fake_java
from training.optimization import rewards
from training.optimization.rewards import NoReward, Rewards, check_rewards
from training.recipes.recipe import RewardWeights
from training.scores.cider import CiderD
from training.scores.java import JavaError
from training.scores.meteor import COUNTS, compute_meteor

REFERENCES = {"one": [["a", "red", "dog"], ["the", "dog"]], "two": [["a", "blue", "cat", "sleeps"]]}
IDS, CAPTIONS = ["two", "one", "one"], [["a", "cat", "sleeps"], ["a", "red", "dog"], ["red"]]
FINISHED = [True, True, False]


@pytest.mark.parametrize("name", ["small", "all", "plain", "one_item"])
def test_scores_of_single_captions_are_the_coco_codes(name: str) -> None:
    """Empty captions and repeated words among them; the items in another order than the references."""
    corpus = coco_golden.small() if name == "small" else coco_golden.shared(name)
    references = {i: [text.split() for text in item.tokens_references] for i, item in corpus.items.items()}
    ids = list(corpus.items)[::-1]
    captions = [corpus.items[i].tokens_hypothesis.split() for i in ids]
    finished = [True] * len(ids)
    wanted = np.array([corpus.items[i].scores["rouge_l"] for i in ids])
    found = Rewards(RewardWeights(cider=0, rouge_l=1), references).score(ids, captions, finished)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6)


def test_bleu_of_a_single_caption_is_smoothed() -> None:
    """Of "a red dog" against "a red cat": words 2 of 3; pairs 1 of 2 and none of one, one added to each."""
    rewarding = Rewards(RewardWeights(cider=0, bleu=1), {"one": [["a", "red", "cat"]]})
    found = rewarding.score(["one", "one"], [["a", "red", "dog"], ["a", "red", "cat"]], [True, True])
    np.testing.assert_allclose(found, [(2 / 3 * 2 / 3 * 1 / 2 * 1) ** 0.25, 1], rtol=1e-6)


def alone(**weights: float) -> np.ndarray:
    return Rewards(RewardWeights(**({"cider": 0.0} | weights)), REFERENCES).score(IDS, CAPTIONS, FINISHED)


def test_rewards_are_a_weighted_sum() -> None:
    parts = {
        "cider": CiderD(REFERENCES, count_end=True).score(IDS, CAPTIONS, FINISHED),
        "bleu": alone(bleu=1.0),
        "rouge_l": alone(rouge_l=1.0),
    }
    for weights in ({"cider": 1.0}, {"cider": 0.5, "bleu": 2.0}, {"cider": 0.0, "rouge_l": 1.5, "bleu": 1.0}):
        rewarding = Rewards(RewardWeights(**weights), REFERENCES)
        wanted = sum(weight * parts[name] for name, weight in weights.items())
        np.testing.assert_allclose(rewarding.score(IDS, CAPTIONS, FINISHED), wanted)
        assert min(parts["cider"]) < max(parts["cider"])


def test_meteor_is_asked_where_it_is_paid_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that answers the same counts to every caption."""
    counts = np.arange(1.0, COUNTS + 1)
    said = " ".join(f"{count:g}" for count in counts)
    java = fake_java(tmp_path, f"while read line; do echo {said}; done")
    monkeypatch.setattr(rewards, "find_java", lambda: java)
    rewarding = Rewards(RewardWeights(cider=0.0, meteor=2.0), REFERENCES)
    try:
        found = rewarding.score(IDS, CAPTIONS, FINISHED)
    finally:
        rewarding.close()
    np.testing.assert_allclose(found, [2 * float(compute_meteor(counts))] * 3)
    with pytest.raises(JavaError, match="was ended"):
        rewarding.score(IDS, CAPTIONS, FINISHED)


def test_without_java_meteor_says_so_and_the_others_do_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("training.scores.java._list_installed", list)
    with pytest.raises(NoReward, match=r"METEOR as a reward needs Java .* No Java: .* Give it no weight"):
        Rewards(RewardWeights(meteor=0.1), REFERENCES)
    with pytest.raises(NoReward):
        check_rewards(RewardWeights(meteor=0.1))
    check_rewards(RewardWeights(rouge_l=1.0))
    assert Rewards(RewardWeights(), REFERENCES).score(["one"], [["a", "red", "dog"]], [True])[0] > 0
