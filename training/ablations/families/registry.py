"""All families, in the order in which they are run."""

from __future__ import annotations

from training.ablations.families import dual_afr, g2l, refocus, stats, vatex
from training.ablations.row import RowFamily

FAMILIES: tuple[RowFamily, ...] = (
    stats.FAMILY,
    g2l.FAMILY,
    refocus.FAMILY,
    vatex.FAMILY,
    dual_afr.FAMILY,
)
