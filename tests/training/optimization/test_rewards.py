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
from training.scores.metrics import compute_rouge_l

REFERENCES = {"one": [["a", "red", "dog"], ["the", "dog"]], "two": [["a", "blue", "cat", "sleeps"]]}
IDS, CAPTIONS = ["two", "one", "one"], [["a", "cat", "sleeps"], ["a", "red", "dog"], ["red"]]
FINISHED = [True, True, False]


@pytest.mark.parametrize("name", ["small", "all", "plain", "one_item"])
def test_scores_of_single_captions_are_the_coco_codes(name: str) -> None:
    """Empty captions and repeated words among them."""
    corpus = coco_golden.small() if name == "small" else coco_golden.shared(name)
    items = corpus.items.values()
    earned = compute_rouge_l(
        [item.tokens_hypothesis for item in items], [item.tokens_references for item in items]
    )
    wanted = np.array([item.scores["rouge_l"] for item in items])
    np.testing.assert_allclose(earned, wanted, rtol=0, atol=1e-6)


def test_bleu_of_a_single_caption_is_smoothed() -> None:
    """Of "a red dog END" by "a red cat END": 3 of 4 words, 1 of 3 pairs, none of 2 and of 1; one is added."""
    rewarding = Rewards(RewardWeights(cider=0, bleu=1), {"one": [["a", "red", "cat"]]})
    earned = rewarding.score(["one", "one"], [["a", "red", "dog"], ["a", "red", "cat"]], [True, True])
    np.testing.assert_allclose(earned, [(3 / 4 * 2 / 4 * 1 / 3 * 1 / 2) ** 0.25, 1], rtol=1e-6)


@pytest.mark.parametrize("metric", ["cider", "bleu", "rouge_l"])
def test_the_end_is_paid_for(metric: str) -> None:
    """The same words cut at the greatest length earn less, by each metric alone."""
    weights = RewardWeights(**({"cider": 0.0} | {metric: 1.0}))
    ended, cut = Rewards(weights, REFERENCES).score(["one"] * 2, [["a", "red", "dog"]] * 2, [True, False])
    assert ended > cut


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
