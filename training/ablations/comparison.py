"""Rows against each other: paired bootstraps over the held-out pictures
(``training/scores/bootstrap.py``)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from training.ablations.results import RowResult
from training.ablations.row import SheetName
from training.scores.bootstrap import Comparison, Floats, Metric, compare


def cider_difference(
    results: Sequence[RowResult], reference: Sequence[RowResult], sheet: SheetName
) -> Comparison | None:
    """CIDEr-D of a row less the reference's, over the seeds that both have; None where they share nothing.

    With several seeds an item's score is its mean over them: the interval is of the pictures, not of seeds.
    """
    ours, theirs = _by_seed(results, sheet), _by_seed(reference, sheet)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    first, second = (np.mean([side[seed] for seed in seeds], axis=0) for side in (ours, theirs))
    return compare(_mean("cider", first), _mean("cider", second))


def share_difference(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Per cent: the mean of the first shares less that of the second, item by item."""
    return compare(_mean("share", 100 * np.array(first)), _mean("share", 100 * np.array(second)))


def _by_seed(results: Sequence[RowResult], sheet: SheetName) -> dict[int, Floats]:
    return {r.seed: np.array(r.sheets[sheet].cider) for r in results if sheet in r.sheets}


def _mean(name: str, values: Floats) -> Metric:
    return Metric(name, np.stack([values, np.ones_like(values)], axis=-1), _ratio)


def _ratio(sums: Floats) -> Floats:
    return np.asarray(sums[..., 0] / sums[..., 1])
