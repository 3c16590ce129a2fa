"""Lists the captioners by name, and the embedding that chooses among them.

Each is found by its checkpoint's metadata, never by a file's name.
"""

from __future__ import annotations

from extractors.errors import ReelwordError
from models.captioner import AnyCaptioner
from models.captioners.dual_afr.network import DualAFR
from models.captioners.g2l.network import G2L
from models.captioners.refocus.network import Refocus
from models.captioners.semantic_embedding import SemanticEmbedding
from models.captioners.stats.network import STaTS
from models.captioners.vatex.network import SpatialCaptioner, TemporalCaptioner, VanillaCaptioner

KINDS: tuple[type[AnyCaptioner], ...] = (
    STaTS,
    G2L,
    Refocus,
    DualAFR,
    VanillaCaptioner,
    TemporalCaptioner,
    SpatialCaptioner,
)
CAPTIONERS: dict[str, type[AnyCaptioner]] = {kind.name: kind for kind in KINDS}
EMBEDDINGS: dict[str, type[SemanticEmbedding]] = {SemanticEmbedding.name: SemanticEmbedding}


class UnknownCaptioner(ReelwordError, ValueError):
    """No captioner of that name; the message lists those there are."""

    code = "captioner_not_registered"
    hint = "Choose one of those that the message lists."


def captioner_class(name: str) -> type[AnyCaptioner]:
    """Finds the class of a captioner. Raises UnknownCaptioner."""
    if name not in CAPTIONERS:
        raise UnknownCaptioner(f"no captioner is called {name!r}; there are: {', '.join(sorted(CAPTIONERS))}")
    return CAPTIONERS[name]
