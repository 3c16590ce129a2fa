"""Declares ``python -m app ablate``; training/ablations has its options."""

from __future__ import annotations

from training.ablations.command import app as ablate

__all__ = ["ablate"]
