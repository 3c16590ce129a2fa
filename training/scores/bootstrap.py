"""Computes confidence intervals of corpus scores and of their differences: percentile bootstrap over items.

Efron & Tibshirani, "An Introduction to the Bootstrap" (1993), ch. 13; for paired systems Koehn, "Statistical
Significance Tests for Machine Translation Evaluation" (2004). A corpus score is a function of sums over
items (BLEU pools n-gram counts, METEOR its matches, the others average), so that a resample is a weighting
of the items and 2,000 of them are one matrix product.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

RESAMPLES: Final = 2000
CONFIDENCE: Final = 0.95
#: Points that are no difference: BLEU without one n-gram of a length is not nothing, but some 0.001.
_NO_DIFFERENCE: Final = 0.005
#: Weights held at a time (32 MiB).
_BLOCK: Final = 4_000_000


@dataclass(frozen=True)
class Metric:
    """A metric's counts for each item, (n, k), and the score that sums of them, (…, k), stand for, in (…).

    Scores are in per cent, as papers print them: CIDEr-D in [0, 1000], the others in [0, 100].
    """

    name: str
    counts: Floats
    score: Callable[[Floats], Floats]

    @property
    def corpus(self) -> float:
        return float(self.score(self.counts.sum(axis=0)))

    @property
    def items(self) -> Floats:
        """The score of each item, (n,)."""
        return self.score(self.counts)


def mean_metric(name: str, values: Floats) -> Metric:
    """Makes a metric whose corpus score is the mean of its items' scores (n,)."""
    counts = np.stack([values, np.ones_like(values)], axis=-1)
    return Metric(name, counts, lambda sums: np.asarray(sums[..., 0] / sums[..., 1]))


@dataclass(frozen=True)
class Comparison:
    """A metric's corpus score for one set of captions less that for another, on the same items."""

    name: str
    difference: float
    interval: tuple[float, float]
    share: float  #: of the resamples in which the first is better
    p: float  #: of no difference, two-sided: twice the share of resamples on the other side of nothing
    n: int


def compute_interval(
    metric: Metric, resamples: int = RESAMPLES, confidence: float = CONFIDENCE, seed: int = 0
) -> tuple[float, float]:
    """Computes percentiles of the corpus score when items are drawn again, with replacement.

    Args:
        metric: the items' counts.
        resamples: how often they are drawn.
        confidence: the share of resamples between both limits.
        seed: of the draws.
    """
    scores = [metric.score(weights @ metric.counts) for weights in _draw_resamples(metric, resamples, seed)]
    return _compute_percentiles(np.concatenate(scores), confidence)


def compare(
    first: Metric,
    second: Metric,
    resamples: int = RESAMPLES,
    confidence: float = CONFIDENCE,
    seed: int = 0,
) -> Comparison:
    """Compares by a paired bootstrap: both sides see the same items in every resample.

    Args:
        first: one side's counts.
        second: the other's, of the same items.
        resamples: how often items are drawn.
        confidence: the share of resamples between both limits.
        seed: of the draws.

    Raises:
        ValueError: the metrics or the numbers of items differ.
    """
    n, others = len(first.counts), len(second.counts)
    if first.name != second.name or n != others:
        raise ValueError(f"{first.name} of {n} items does not compare with {second.name} of {others}.")
    differences = np.concatenate(
        [
            first.score(weights @ first.counts) - second.score(weights @ second.counts)
            for weights in _draw_resamples(first, resamples, seed)
        ]
    )
    sides = (differences <= _NO_DIFFERENCE).sum(), (differences >= -_NO_DIFFERENCE).sum()
    return Comparison(
        first.name,
        first.corpus - second.corpus,
        _compute_percentiles(differences, confidence),
        float((differences > _NO_DIFFERENCE).mean()),
        min(1.0, 2 * (1 + float(min(sides))) / (1 + resamples)),  # never 0: the captions are a resample, too
        n,
    )


def _draw_resamples(metric: Metric, resamples: int, seed: int) -> Iterator[Floats]:
    """Yields blocks of (some resamples, n): how often each item is drawn."""
    n = len(metric.counts)
    generator = np.random.default_rng(seed)
    block = max(1, _BLOCK // n)
    for first in range(0, resamples, block):
        rows = min(block, resamples - first)
        drawn = generator.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        yield np.bincount(drawn.ravel(), minlength=rows * n).reshape(rows, n).astype(np.float64)


def _compute_percentiles(scores: Floats, confidence: float) -> tuple[float, float]:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(scores, [tail, 100 - tail])
    return float(low), float(high)
