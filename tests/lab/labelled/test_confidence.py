"""Confidence against the law that its marks were drawn by."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lab.labelled.confidence import (
    JudgedEvidence,
    draw_calibration,
    fit_confidence,
    predict,
    predict_unseen,
    tabulate,
)

LAW = torch.tensor([-2.0, 4.0, 1.0])


@pytest.fixture
def evidence() -> JudgedEvidence:
    chance = torch.Generator().manual_seed(3)
    parts = torch.randn(4000, 2, generator=chance)
    return JudgedEvidence(parts, torch.rand(4000, generator=chance) < predict(LAW, parts))


def test_the_law_behind_the_marks_is_found(evidence: JudgedEvidence) -> None:
    assert torch.allclose(fit_confidence(evidence), LAW, atol=0.4)


def test_what_is_said_of_unseen_captions_is_calibrated_and_beats_a_constant(evidence: JudgedEvidence) -> None:
    unseen, right = predict_unseen(evidence), evidence.right.float()
    assert (unseen - right).square().mean() < 0.7 * (right.mean() - right).square().mean()
    for sure, share, count in tabulate(unseen, right):
        assert count == 1000
        assert share == pytest.approx(sure, abs=0.05)


def test_no_mark_of_a_fold_counts_in_its_own_fit(evidence: JudgedEvidence) -> None:
    few = evidence.select(torch.arange(40))
    turned = JudgedEvidence(few.parts, few.right.clone())
    turned.right[7] = ~turned.right[7]
    assert predict_unseen(few)[7] == predict_unseen(turned)[7]


def test_a_plot_has_a_point_for_each_bin(evidence: JudgedEvidence) -> None:
    (axes,) = draw_calibration(predict_unseen(evidence), evidence.right).axes
    assert len(np.asarray(axes.lines[1].get_xdata())) == 4
