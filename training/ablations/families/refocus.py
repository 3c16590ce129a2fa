"""Refocus: the four rows of its table 1, and step 1 against step 2.

Eq. 21 compares a video's reward with that of the last epoch, so that all rows are trained on few videos, that
come again soon.
"""

from __future__ import annotations

from training.ablations.row import AblationRow, Read, RowFamily, Trained

STEP_1 = "Both steps are one decoder's; the second caption, from the predicted key frame, should be better."

FAMILY = RowFamily(
    "refocus",
    "Refocus",
    (
        AblationRow(
            "refocus",
            "VRE: both passes, the caption of step 2",
            Trained("refocus"),
            None,
            "Table 1, MSR-VTT: CIDEr 48.3, above all rows below.",
            headline=True,
        ),
        AblationRow(
            "refocus-kbigru-spatial",
            "KBiGRU from the middle frame, with v^s",
            Trained("refocus", {"encoder": "kbigru"}),
            "refocus",
            "CIDEr 45.1 with v^s and sound; pictures have no sound, so v^a is missing in every row here.",
            headline=True,
        ),
        AblationRow(
            "refocus-step-1",
            "VRE: the caption of step 1",
            Read(("refocus",), how="step_1"),
            "refocus",
            STEP_1,
        ),
        AblationRow(
            "refocus-kbigru",
            "KBiGRU from the middle frame, without v^s",
            Trained("refocus", {"encoder": "kbigru", "spatial": False}),
            "refocus",
            "CIDEr 43.8.",
        ),
        AblationRow(
            "refocus-plain",
            "V^f + v^s: no encoder over time",
            Trained("refocus", {"encoder": "none"}),
            "refocus",
            "CIDEr 39.6, the lowest.",
        ),
        AblationRow(
            "refocus-demo",
            "the shipped checkpoint, step 2",
            Read(("refocus",), shipped=True),
            None,
            "Long training in place of minutes.",
        ),
        AblationRow(
            "refocus-demo-step-1",
            "the shipped checkpoint, step 1",
            Read(("refocus",), how="step_1", shipped=True),
            "refocus-demo",
            STEP_1,
        ),
    ),
    words="refocus",
    videos=1200,
)
