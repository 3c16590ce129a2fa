"""dualAFR: single layers against all, soft against hard, and the other ways to align the layers."""

from __future__ import annotations

from models.captioners.alignment import Alignment
from models.captioners.dual_afr import STAGES
from training.ablations.row import AblationRow, RowFamily, Trained

AGAINST = "against 72.2 of dualAFR with soft attention."


def _single(layer: int, title: str, cider: str) -> AblationRow:
    make = Trained("dual_afr", {"layers": (STAGES[layer],)})
    return AblationRow(
        f"dual-afr-layer-{layer + 1}", title, make, "dual-afr", f"Table 1: CIDEr {cider}, {AGAINST}"
    )


def _aligned(kind: Alignment, cider: str) -> AblationRow:
    make = Trained("dual_afr", {"alignment": kind})
    title = f"all layers, aligned by {kind}"
    return AblationRow(f"dual-afr-{kind}", title, make, "dual-afr", f"Table 1: CIDEr {cider}, {AGAINST}")


FAMILY = RowFamily(
    "dual_afr",
    "dualAFR",
    (
        AblationRow(
            "dual-afr",
            "all layers, soft attention, aligned by convolution",
            Trained("dual_afr"),
            None,
            "Table 1, MSVD: CIDEr 72.2, above any single layer and any other alignment.",
            headline=True,
        ),
        # three samples a caption: ten take ten times the decoder's work, and the minutes are the same for all
        AblationRow(
            "dual-afr-hard",
            "all layers, hard attention (K = 3)",
            Trained("dual_afr", {"kind": "hard", "samples": 3}),
            "dual-afr",
            "Table 1: CIDEr 72.2, as good as soft attention.",
            headline=True,
        ),
        _single(2, "the last layer alone (7×7×1280)", "69.7 of pool5"),
        _single(1, "the middle layer alone (7×7×352)", "71.0 of pool4"),
        _single(0, "the early layer alone (14×14×120)", "70.0 of pool3"),
        _aligned("average", "65.1"),
        _aligned("max", "63.0"),
        _aligned("hypercolumn", "63.2"),
        _aligned("mlp", "44.2"),
    ),
    words="dual_afr",
    streams="demo-stages",
)
