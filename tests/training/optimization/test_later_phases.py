"""What follows cross-entropy, and from whose weights each phase goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch

from models.captioner import Captioner
from models.captioners.refocus.network import Refocus
from models.vocabulary import Vocabulary
from tests.training.killed_training import RECIPE, stats, trainer
from tests.training.optimization.test_refocusing import CONFIG
from training.optimization.learner import Learner, NetworkT
from training.optimization.phases import train_later_phases
from training.optimization.trainer import Phase, Trainer

PHASES = {"first_step": 1, "combined": 1, "frozen_key_frames": 1}
ALL = {"phases": PHASES, "self_critical_steps": 1}
REFOCUS = ["first_step", "combined", "frozen_key_frames"]


@dataclass(frozen=True, eq=False)
class Noting(Trainer):
    """Notes the phases in place of going through them."""

    gone_through: list[str] = field(default_factory=list)

    def go_through(self, phase: Phase[NetworkT], learner: Learner[NetworkT]) -> None:
        self.gone_through.append(phase.name)


def refocus(vocabulary: Vocabulary) -> Refocus:
    torch.manual_seed(0)
    return Refocus(CONFIG, vocabulary)


@pytest.mark.parametrize(
    ("is_refocus", "steps", "expected"),
    [
        (True, ALL, [*REFOCUS, "self_critical"]),
        (True, {**ALL, "self_critical_steps": 0}, REFOCUS),
        (
            True,
            {**ALL, "phases": {**PHASES, "combined": 0}},
            [REFOCUS[0], REFOCUS[2], "self_critical"],
        ),
        (False, ALL, ["self_critical"]),
        (False, {**ALL, "self_critical_steps": 0}, []),
    ],
)
def test_each_phase_goes_on_from_the_one_before(
    tmp_path: Path, is_refocus: bool, steps: dict[str, object], expected: list[str]
) -> None:
    tiny = trainer(tmp_path, tmp_path, recipe=RECIPE.model_copy(update=steps))
    vocabulary = tiny.batches.vocabulary
    noting = Noting(
        tiny.recipe,
        tiny.batches,
        tiny.validation,
        tiny.run,
        tiny.save_best,
        tiny.precision,
    )
    captioner: Captioner = refocus(vocabulary) if is_refocus else stats(vocabulary, seed=0)
    begun_from: list[str] = []

    def best_after(phase: str) -> Captioner:
        begun_from.append(phase)
        return captioner

    train_later_phases(captioner, noting, best_after)
    assert noting.gone_through == expected
    assert begun_from == ["cross_entropy", *expected][: len(expected)]
