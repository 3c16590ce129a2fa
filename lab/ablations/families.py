"""Lists the rows of each paper's ablation: what is trained or read, and what the paper claims of it."""

from __future__ import annotations

from lab.ablations.row import AblationRow, ReadingSpec, RowFamily, TrainingSpec
from models.captioners.dual_afr.alignment import Alignment
from models.captioners.dual_afr.network import STAGES

# STaTS: its tables 1 and 2, and its figure 5.

#: Table 2 is of the spatio-temporal branch: alone, it shows its pooling best.
ST = {"branches": "st"}
UNRANKED = {"ranking_weight": 0.0}


def _table_2(name: str, title: str, pooling: str, cider: str, ranked: bool = True) -> AblationRow:
    make = TrainingSpec("stats", {**ST, "pooling": pooling}, {} if ranked else UNRANKED)
    paper = f"Table 2, MSR-VTT: CIDEr {cider}, against 40.4 of mean + ranked."
    return AblationRow(f"stats-{name}", title, make, "stats-st", paper, measures_attention=False)


STATS = RowFamily(
    "stats",
    "STaTS",
    (
        AblationRow(
            "stats",
            "STaTS: both branches",
            TrainingSpec("stats"),
            None,
            "Table 1: CIDEr 80.2 on MSVD and 43.4 on MSR-VTT, above either branch alone.",
            headline=True,
        ),
        AblationRow(
            "stats-st",
            "ST alone (mean + ranked pooling)",
            TrainingSpec("stats", ST),
            "stats",
            "Table 1: 74.2 and 42.9, below both branches together.",
            headline=True,
            measures_attention=False,
        ),
        AblationRow(
            "stats-ts",
            "TS alone",
            TrainingSpec("stats", {"branches": "ts"}),
            "stats",
            "Table 1: 52.1 and 42.7: usually the weakest, for its choice of a frame is greedy.",
        ),
        _table_2("mean", "ST with mean pooling", "mean", "38.9"),
        _table_2("lstm", "ST with an LSTM (no ranking loss)", "ranked", "38.5", ranked=False),
        _table_2("attention", "temporal attention over all regions of all frames", "everything", "38.2"),
        _table_2("ranked", "ST with ranked attention", "ranked", "38.7"),
        _table_2("mean-lstm", "ST with mean + LSTM (no ranking loss)", "mean_ranked", "38.8", ranked=False),
        _table_2("mean-attention", "regions' mean, then temporal attention", "frames", "38.5"),
        AblationRow(
            "stats-demo",
            "the shipped checkpoint",
            ReadingSpec(("stats",), shipped=True),
            None,
            "Long training in place of minutes; its attention was taught which shot a caption is of.",
        ),
        AblationRow(
            "stats-demo-st",
            "the shipped checkpoint through ST alone",
            ReadingSpec(("stats",), config=ST, shipped=True),
            "stats-demo",
            "Figure 5: ST writes more verbs: 27 % of its words, 8 % more than TS.",
            measures_attention=False,
        ),
        AblationRow(
            "stats-demo-ts",
            "the shipped checkpoint through TS alone",
            ReadingSpec(("stats",), config={"branches": "ts"}, shipped=True),
            "stats-demo",
            "Figure 5: TS writes more nouns: 59 % of its words, 10 % more than ST.",
        ),
    ),
    words="stats",
)


# G2L: its ablation of the local branch and of the sampler, and its figure 6.

#: Figure 6's attentions by the level's name in ``G2LConfig.masked``.
LEVELS = {"2d": "frames", "3d": "clips", "al": "aligned", "l": "regions"}
SHARES = (0.5, 0.75, 1.0)


def _key_frames(count: int, cider: str) -> AblationRow:
    title = f"{count} key frame{'s' if count > 1 else ''}"
    paper = f"CIDEr {cider} on MSR-VTT, against 50.3 with two key frames."
    return AblationRow(f"g2l-{count}", title, TrainingSpec("g2l", {"key_frames": count}), "g2l", paper)


def _masked(level: str, share: float) -> AblationRow:
    """Makes a row of the pseudo-videos alone: a still has one frame to attend to."""
    paper = "Figure 6: stable until all is masked, and then a sharp fall, the deepest for the clips."
    return AblationRow(
        f"g2l-demo-mask-{level}-{share:.0%}".rstrip("%"),
        f"the shipped checkpoint, {share:.0%} of the {LEVELS[level]} attention masked",
        ReadingSpec(("g2l",), config={"masked": {level: share}}, shipped=True),
        "g2l-demo",
        paper,
        eval_sets=("shots",),
    )


G2L = RowFamily(
    "g2l",
    "G2L",
    (
        AblationRow(
            "g2l",
            "global, aligned, 2 key frames by Gumbel",
            TrainingSpec("g2l"),
            None,
            "CIDEr 50.3 on MSR-VTT, above all rows below.",
            headline=True,
        ),
        AblationRow(
            "g2l-global",
            "global alone",
            TrainingSpec("g2l", {"alignment": False, "key_frames": 0}),
            "g2l",
            "CIDEr 45.2, the lowest.",
            headline=True,
        ),
        AblationRow(
            "g2l-aligned",
            "global and aligned",
            TrainingSpec("g2l", {"key_frames": 0}),
            "g2l",
            "CIDEr 46.8: the alignment gives 1.6, the key frames 3.5 more.",
        ),
        _key_frames(1, "48.4"),
        _key_frames(3, "50.0"),
        AblationRow(
            "g2l-no-gumbel",
            "2 key frames without Gumbel",
            TrainingSpec("g2l", {"gumbel": False}),
            "g2l",
            "CIDEr 47.1: without the sampler both branches are not trained together.",
        ),
        AblationRow(
            "g2l-printed",
            "2 key frames, the sampler's gradient as printed (τ = 1e-4)",
            TrainingSpec("g2l", {"tau_backward": None}),
            "g2l",
            "Printed so; our backward pass at τ = 0.5 is no row of the paper.",
        ),
        AblationRow(
            "g2l-demo",
            "the shipped checkpoint",
            ReadingSpec(("g2l",), shipped=True),
            None,
            "Long training in place of minutes: what figure 6 is read from.",
        ),
        *(_masked(level, share) for level in LEVELS for share in SHARES),
    ),
    words="g2l",
)


# Refocus: the four rows of its table 1, and step 1 against step 2. Eq. 21 compares a video's reward with that
# of the last epoch, so that all rows are trained on few videos, that come again soon.

STEP_1 = "Both steps are one decoder's; the second caption, from the predicted key frame, should be better."

REFOCUS = RowFamily(
    "refocus",
    "Refocus",
    (
        AblationRow(
            "refocus",
            "VRE: both passes, the caption of step 2",
            TrainingSpec("refocus"),
            None,
            "Table 1, MSR-VTT: CIDEr 48.3, above all rows below.",
            headline=True,
        ),
        AblationRow(
            "refocus-kbigru-spatial",
            "KBiGRU from the middle frame, with v^s",
            TrainingSpec("refocus", {"encoder": "kbigru"}),
            "refocus",
            "CIDEr 45.1 with v^s and sound; pictures have no sound, so v^a is missing in every row here.",
            headline=True,
        ),
        AblationRow(
            "refocus-step-1",
            "VRE: the caption of step 1",
            ReadingSpec(("refocus",), how="step_1"),
            "refocus",
            STEP_1,
        ),
        AblationRow(
            "refocus-kbigru",
            "KBiGRU from the middle frame, without v^s",
            TrainingSpec("refocus", {"encoder": "kbigru", "spatial": False}),
            "refocus",
            "CIDEr 43.8.",
        ),
        AblationRow(
            "refocus-plain",
            "V^f + v^s: no encoder over time",
            TrainingSpec("refocus", {"encoder": "none"}),
            "refocus",
            "CIDEr 39.6, the lowest.",
        ),
        AblationRow(
            "refocus-demo",
            "the shipped checkpoint, step 2",
            ReadingSpec(("refocus",), shipped=True),
            None,
            "Long training in place of minutes.",
        ),
        AblationRow(
            "refocus-demo-step-1",
            "the shipped checkpoint, step 1",
            ReadingSpec(("refocus",), how="step_1", shipped=True),
            "refocus-demo",
            STEP_1,
        ),
    ),
    words="refocus",
    videos=1200,
)


# The VATEX challenge's fusion: three members, and three ways to join them.

MEMBERS = ("fusion-temporal", "fusion-spatial")

VATEX = RowFamily(
    "fusion",
    "Fusion",
    (
        AblationRow(
            "fusion-vanilla",
            "vanilla: no attention",
            TrainingSpec("vanilla"),
            None,
            "VATEX: CIDEr 72.5, the lowest.",
            headline=True,
            measures_attention=False,
        ),
        AblationRow(
            "fusion-spatial",
            "spatial attention",
            TrainingSpec("spatial"),
            "fusion-vanilla",
            "VATEX: CIDEr 77.8, 5.3 above vanilla.",
            headline=True,
        ),
        AblationRow(
            "fusion-temporal",
            "temporal attention",
            TrainingSpec("temporal"),
            "fusion-vanilla",
            "VATEX: CIDEr 78.5, 6.0 above vanilla.",
        ),
        AblationRow(
            "fusion-fused",
            "temporal and spatial, the semantic embedding picks",
            ReadingSpec(MEMBERS, how="fused"),
            "fusion-spatial",
            "VATEX, after reinforcement: CIDEr 88.8, 3.4 above either member's 85.4.",
            measures_attention=False,
        ),
        AblationRow(
            "fusion-judged",
            "the same, and how likely both find a caption",
            ReadingSpec(MEMBERS, how="judged"),
            "fusion-fused",
            "No row of the paper: the rule that is served.",
            measures_attention=False,
        ),
        AblationRow(
            "fusion-averaged",
            "temporal and spatial, averaged probabilities",
            ReadingSpec(MEMBERS, how="averaged"),
            "fusion-spatial",
            "No row of the paper: what the embedding has to surpass.",
            measures_attention=False,
        ),
    ),
    words="spatial",
)


# dualAFR: single layers against all, soft against hard, and the other ways to align the layers.

AGAINST = "against 72.2 of dualAFR with soft attention."


def _single(layer: int, title: str, cider: str) -> AblationRow:
    make = TrainingSpec("dual_afr", {"layers": (STAGES[layer],)})
    return AblationRow(
        f"dual-afr-layer-{layer + 1}", title, make, "dual-afr", f"Table 1: CIDEr {cider}, {AGAINST}"
    )


def _aligned(kind: Alignment, cider: str) -> AblationRow:
    make = TrainingSpec("dual_afr", {"alignment": kind})
    title = f"all layers, aligned by {kind}"
    return AblationRow(f"dual-afr-{kind}", title, make, "dual-afr", f"Table 1: CIDEr {cider}, {AGAINST}")


DUAL_AFR = RowFamily(
    "dual_afr",
    "dualAFR",
    (
        AblationRow(
            "dual-afr",
            "all layers, soft attention, aligned by convolution",
            TrainingSpec("dual_afr"),
            None,
            "Table 1, MSVD: CIDEr 72.2, above any single layer and any other alignment.",
            headline=True,
        ),
        # three samples a caption: ten take ten times the decoder's work, and the minutes are the same for all
        AblationRow(
            "dual-afr-hard",
            "all layers, hard attention (K = 3)",
            TrainingSpec("dual_afr", {"kind": "hard", "samples": 3}),
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


#: All families, in the order in which they are run.
FAMILIES: tuple[RowFamily, ...] = (STATS, G2L, REFOCUS, VATEX, DUAL_AFR)
