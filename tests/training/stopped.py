"""A run that ends before one of its steps, as a kill would end it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from training.batches.training_batch import TrainingBatch


def stopped_before(last: int, batches: type[Any]) -> Callable[[Any, int], TrainingBatch]:
    """In the place of ``at`` of a class of batches."""
    real = batches.at

    def at(of: Any, step: int) -> TrainingBatch:
        if step == last:
            raise InterruptedError
        batch: TrainingBatch = real(of, step)
        return batch

    return at
