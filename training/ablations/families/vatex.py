"""The VATEX challenge's fusion: three members, and three ways to join them."""

from __future__ import annotations

from training.ablations.row import AblationRow, Read, RowFamily, Trained

MEMBERS = ("fusion-temporal", "fusion-spatial")

FAMILY = RowFamily(
    "fusion",
    "Fusion",
    (
        AblationRow(
            "fusion-vanilla",
            "vanilla: no attention",
            Trained("vanilla"),
            None,
            "VATEX: CIDEr 72.5, the lowest.",
            headline=True,
            looks=False,
        ),
        AblationRow(
            "fusion-spatial",
            "spatial attention",
            Trained("spatial"),
            "fusion-vanilla",
            "VATEX: CIDEr 77.8, 5.3 above vanilla.",
            headline=True,
        ),
        AblationRow(
            "fusion-temporal",
            "temporal attention",
            Trained("temporal"),
            "fusion-vanilla",
            "VATEX: CIDEr 78.5, 6.0 above vanilla.",
        ),
        AblationRow(
            "fusion-fused",
            "temporal and spatial, the semantic embedding picks",
            Read(MEMBERS, how="fused"),
            "fusion-spatial",
            "VATEX, after reinforcement: CIDEr 88.8, 3.4 above either member's 85.4.",
            looks=False,
        ),
        AblationRow(
            "fusion-judged",
            "the same, and how likely both find a caption",
            Read(MEMBERS, how="judged"),
            "fusion-fused",
            "No row of the paper: the rule that is served.",
            looks=False,
        ),
        AblationRow(
            "fusion-averaged",
            "temporal and spatial, averaged probabilities",
            Read(MEMBERS, how="averaged"),
            "fusion-spatial",
            "No row of the paper: what the embedding has to surpass.",
            looks=False,
        ),
    ),
    words="spatial",
)
