"""The captioners by name. A captioner is found by its checkpoint's metadata, never by a file's name."""

from __future__ import annotations

from typing import Any

from models.dual_afr import DualAFR
from models.g2l import G2L
from models.refocus import Refocus
from models.stats import Stats

CAPTIONERS: dict[str, type[Any]] = {kind.name: kind for kind in (Stats, G2L, Refocus, DualAFR)}


class UnknownCaptioner(ValueError):
    """No captioner of that name; the message lists those there are."""


def captioner_class(name: str) -> type[Any]:
    """The class of a captioner. Raises UnknownCaptioner."""
    if name not in CAPTIONERS:
        raise UnknownCaptioner(f"no captioner is called {name!r}; there are: {', '.join(sorted(CAPTIONERS))}")
    return CAPTIONERS[name]
