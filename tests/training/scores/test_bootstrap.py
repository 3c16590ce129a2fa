from __future__ import annotations

import time

import numpy as np
import pytest

from training.scores import bootstrap
from training.scores.bootstrap import Floats, Metric, compare, compute_interval


def mean_of(scores: Floats, name: str = "rouge_l") -> Metric:
    counts = np.stack([scores, np.ones_like(scores)], axis=-1)
    return Metric(name, counts, lambda sums: np.asarray(sums[..., 0] / sums[..., 1]))


def test_the_interval_of_a_mean_is_the_textbooks() -> None:
    scores = np.random.default_rng(0).normal(50, 10, 400)
    low, high = compute_interval(mean_of(scores), resamples=4000)
    error = 1.96 * scores.std() / np.sqrt(400)
    assert low == pytest.approx(scores.mean() - error, abs=0.1)
    assert high == pytest.approx(scores.mean() + error, abs=0.1)


def test_counts_are_pooled_and_not_averaged() -> None:
    """Of two items, 1 of 1 and 0 of 99, half the resamples hold both: 1 % where the mean would be 50 %."""
    metric = Metric(
        "bleu1", np.array([[1.0, 1.0], [0.0, 99.0]]), lambda sums: 100 * sums[..., 0] / sums[..., 1]
    )
    assert metric.corpus == 1
    assert metric.items.tolist() == [100, 0]
    assert compute_interval(metric, confidence=0.4) == (1, 1)
    assert compute_interval(metric, confidence=0.95) == (0, 100)


def test_a_seed_gives_one_answer_however_memory_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    metric = mean_of(np.random.default_rng(1).normal(size=30))
    first = compute_interval(metric, resamples=100, seed=5)
    assert compute_interval(metric, resamples=100, seed=6) != first
    monkeypatch.setattr(bootstrap, "_BLOCK", 7 * 30)
    assert compute_interval(metric, resamples=100, seed=5) == pytest.approx(first)


def test_pairs_see_small_differences() -> None:
    generator = np.random.default_rng(2)
    hard = generator.normal(50, 20, 200)
    better = mean_of(hard + generator.normal(1, 1, 200))
    result = compare(better, mean_of(hard))
    low, high = result.interval
    assert 0.8 < low < result.difference < high < 1.2
    assert result.share == 1
    assert result.p == pytest.approx(2 / 2001)
    assert (result.name, result.n) == ("rouge_l", 200)
    own_low, own_high = compute_interval(better)
    assert own_high - own_low > 10 * (high - low)


def test_equal_captions_do_not_differ() -> None:
    metric = mean_of(np.arange(9.0))
    result = compare(metric, metric)
    assert (result.difference, result.interval, result.share, result.p) == (0, (0, 0), 0, 1)


def test_what_is_printed_as_nothing_is_no_difference() -> None:
    """BLEU-4 of captions without four right words in a row is tiny, and as tiny in every resample."""
    tiny, none = mean_of(np.full(9, 0.0016)), mean_of(np.zeros(9))
    assert compare(tiny, none).p == compare(none, tiny).p == 1
    assert compare(tiny, none).share == 0


def test_only_like_compares_with_like() -> None:
    with pytest.raises(ValueError, match="rouge_l of 3 items does not compare with rouge_l of 4"):
        compare(mean_of(np.ones(3)), mean_of(np.ones(4)))
    with pytest.raises(ValueError, match="does not compare with meteor"):
        compare(mean_of(np.ones(3)), mean_of(np.ones(3), "meteor"))


def test_two_thousand_resamples_take_seconds() -> None:
    metric = Metric(
        "meteor", np.random.default_rng(3).random((1000, 23)), lambda sums: sums[..., 0] / sums[..., 1]
    )
    start = time.process_time()
    compute_interval(metric, resamples=2000)
    assert time.process_time() - start < 3
