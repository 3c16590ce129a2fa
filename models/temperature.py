"""Sharper or flatter distributions over the next word."""

from __future__ import annotations

from torch import Tensor


def tempered(log_probs: Tensor, temperature: float) -> Tensor:
    """(R, V) log-probabilities divided by ``temperature`` and normalised again."""
    if temperature == 1:
        return log_probs
    return (log_probs / temperature).log_softmax(1)
