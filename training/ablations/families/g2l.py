"""G2L: its ablation of the local branch and of the sampler, and its figure 6."""

from __future__ import annotations

from training.ablations.row import AblationRow, Read, RowFamily, Trained

#: Figure 6's attentions by the level's name in ``G2LConfig.masked``.
LEVELS = {"2d": "frames", "3d": "clips", "al": "aligned", "l": "regions"}
SHARES = (0.5, 0.75, 1.0)


def _key_frames(count: int, cider: str) -> AblationRow:
    title = f"{count} key frame{'s' if count > 1 else ''}"
    paper = f"CIDEr {cider} on MSR-VTT, against 50.3 with two key frames."
    return AblationRow(f"g2l-{count}", title, Trained("g2l", {"key_frames": count}), "g2l", paper)


def _masked(level: str, share: float) -> AblationRow:
    """Only on the pseudo-videos: a still has one frame to attend to."""
    paper = "Figure 6: stable until all is masked, and then a sharp fall, the deepest for the clips."
    return AblationRow(
        f"g2l-demo-mask-{level}-{share:.0%}".rstrip("%"),
        f"the shipped checkpoint, {share:.0%} of the {LEVELS[level]} attention masked",
        Read(("g2l",), config={"masked": {level: share}}, shipped=True),
        "g2l-demo",
        paper,
        sheets=("shots",),
    )


FAMILY = RowFamily(
    "g2l",
    "G2L",
    (
        AblationRow(
            "g2l",
            "global, aligned, 2 key frames by Gumbel",
            Trained("g2l"),
            None,
            "CIDEr 50.3 on MSR-VTT, above all rows below.",
            headline=True,
        ),
        AblationRow(
            "g2l-global",
            "global alone",
            Trained("g2l", {"alignment": False, "key_frames": 0}),
            "g2l",
            "CIDEr 45.2, the lowest.",
            headline=True,
        ),
        AblationRow(
            "g2l-aligned",
            "global and aligned",
            Trained("g2l", {"key_frames": 0}),
            "g2l",
            "CIDEr 46.8: the alignment gives 1.6, the key frames 3.5 more.",
        ),
        _key_frames(1, "48.4"),
        _key_frames(3, "50.0"),
        AblationRow(
            "g2l-no-gumbel",
            "2 key frames without Gumbel",
            Trained("g2l", {"gumbel": False}),
            "g2l",
            "CIDEr 47.1: without the sampler both branches are not trained together.",
        ),
        AblationRow(
            "g2l-printed",
            "2 key frames, the sampler's gradient as printed (τ = 1e-4)",
            Trained("g2l", {"tau_backward": None}),
            "g2l",
            "Printed so; our backward pass at τ = 0.5 is no row of the paper.",
        ),
        AblationRow(
            "g2l-demo",
            "the shipped checkpoint",
            Read(("g2l",), shipped=True),
            None,
            "Long training in place of minutes: what figure 6 is read from.",
        ),
        *(_masked(level, share) for level in LEVELS for share in SHARES),
    ),
    words="g2l",
)
