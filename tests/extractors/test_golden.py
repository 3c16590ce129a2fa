"""Our networks against the public ones, output by output, under weights that anybody can make."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.extractors import golden
from tests.extractors.golden import Case
from tests.extractors.golden_mistakes import MISTAKES
from tests.extractors.golden_networks import NoNetwork, inputs_of, judge, network_of
from tests.extractors.golden_rule import made_input, parameter

FOLDER = golden.folder()
SHARED_CASES = golden.cases(FOLDER) if FOLDER else []
CARRIED_CASES = golden.cases(golden.CARRIED)


def check(case: Case) -> None:
    network = network_of(case).build(case.weights())
    wrong = [str(verdict) for verdict in judge(case, network, inputs_of(case)) if not verdict.ok]
    assert not wrong, f"{case.name}: " + "; ".join(wrong)


@pytest.mark.parametrize("case", CARRIED_CASES, ids=lambda case: case.name)
def test_golden_case_carried_here(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", SHARED_CASES or [None], ids=lambda case: case.name if case else "absent")
def test_golden_case(case: Case | None) -> None:
    if case is None:
        pytest.skip("shared/golden absent")
    check(case)


@pytest.mark.parametrize("folder", [golden.CARRIED, FOLDER], ids=["carried", "shared"])
def test_golden_rule_is_the_published_one_bit_for_bit(folder: Path | None) -> None:
    if folder is None:
        pytest.skip("shared/golden absent")
    checks = golden.manifest(folder)["checks"]
    assert checks
    for made in checks:
        array = parameter(*made["fill"]) if "fill" in made else made_input(*made["make_input"])
        assert array is not None
        assert array.dtype == made.get("dtype", "float32")
        assert array.ravel()[:4].tolist() == pytest.approx(made["first"])
        little = array.astype(array.dtype.newbyteorder("<"))
        assert hashlib.sha256(little.tobytes()).hexdigest() == made["sha256"]


def test_golden_rule_leaves_the_networks_own_values_alone() -> None:
    for name in ("bn1.num_batches_tracked", "pixel_mean", "anchor_generator.cell_anchors.0"):
        assert parameter(name, (4,), 7) is None
    assert parameter("scale", (), 7) is None


def test_golden_case_without_its_network_fails() -> None:
    case = Case(golden.CARRIED, {**CARRIED_CASES[0].entry, "network": "a network of nobody"})
    with pytest.raises(NoNetwork, match="a network of nobody"):
        check(case)


def test_golden_comparison_is_of_every_value_kept() -> None:
    """One value off, another shape, a value that is no number, an output that is not there: each is wrong."""
    entry = {"outputs": {"map": {"shape": [2, 3], "step": 2, "absmax": 4.0, "tolerance": 1e-4}}}
    case = Case(golden.CARRIED, entry)
    case.__dict__["stored"] = {"map": np.array([1.0, 3.0, 4.0], np.float32)}
    good = torch.tensor([[1.0, 9.0, 3.0], [9.0, 4.0, 9.0]])
    assert case.judge("map", good).ok
    off, absurd = good.clone(), good.clone()
    off[1, 1] += 5e-4
    absurd[1, 1] = torch.nan
    assert case.judge("map", off).error == pytest.approx(1.25e-4, rel=1e-3)
    for bad in (off, absurd, good.reshape(3, 2)):
        assert not case.judge("map", bad).ok


def test_golden_case_with_an_output_that_nobody_makes_fails() -> None:
    case = CARRIED_CASES[0]
    outputs = {**case.entry["outputs"], "one_more": {"shape": [1]}}
    more = Case(golden.CARRIED, {**case.entry, "outputs": outputs})
    more.__dict__["stored"] = case.stored
    with pytest.raises(AssertionError, match="one_more"):
        check(more)


def mistakes(folder: Path | None) -> list[tuple[Case, str]]:
    """Every mistake of a folder's sensitivity.json with the case that must notice it."""
    if folder is None:
        return []
    known = {case.name: case for case in golden.cases(folder)}
    return [(known[name], mistake) for name, rows in golden.sensitivity(folder).items() for mistake in rows]


def check_mistake(case: Case, mistake: str, patch: pytest.MonkeyPatch) -> None:
    """Outputs move as far as the folder says, and those beyond the tolerance turn the case red."""
    network, inputs = network_of(case).build(case.weights()), inputs_of(case)
    MISTAKES[mistake](patch, network, inputs)
    verdicts = {verdict.output: verdict for verdict in judge(case, network, inputs)}
    moved = golden.sensitivity(case.folder)[case.name][mistake]
    assert not all(verdict.ok for verdict in verdicts.values())
    for output, error in moved.items():
        assert verdicts[output].ok == (error <= verdicts[output].tolerance), verdicts[output]
        assert verdicts[output].error == pytest.approx(error, rel=0.25, abs=1e-4)


@pytest.mark.parametrize("made", mistakes(golden.CARRIED), ids=lambda made: f"{made[0].name}-{made[1]}")
def test_golden_mistake_turns_a_carried_case_red(
    made: tuple[Case, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_mistake(*made, monkeypatch)


@pytest.mark.parametrize(
    "made", mistakes(FOLDER) or [None], ids=lambda made: f"{made[0].name}-{made[1]}" if made else "absent"
)
def test_golden_mistake_turns_its_case_red(
    made: tuple[Case, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if made is None:
        pytest.skip("shared/golden absent")
    check_mistake(*made, monkeypatch)
