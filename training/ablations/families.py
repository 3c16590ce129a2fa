"""All families, in the order in which they are run."""

from __future__ import annotations

from training.ablations import dual_afr, fusion, g2l, refocus, stats
from training.ablations.row import Family

FAMILIES: tuple[Family, ...] = (
    stats.FAMILY,
    g2l.FAMILY,
    refocus.FAMILY,
    fusion.FAMILY,
    dual_afr.FAMILY,
)
