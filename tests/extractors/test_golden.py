"""Our networks against the public ones, output by output, under weights that anybody can make.

pytest runs all tests of one network before the next, whose place it takes in memory: the fixture that
builds it is the module's, and its parameter says which it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.extractors import golden
from tests.extractors.golden import Case, Filled
from tests.extractors.golden_matching import ENOUGH, detector_rows, match, stored_rows
from tests.extractors.golden_mistakes import MISTAKES
from tests.extractors.golden_networks import NoNetwork, inputs_of, judge, network_of
from tests.extractors.golden_rule import made_input, parameter

FOLDER = golden.folder()
CARRIED_CASES = golden.cases(golden.CARRIED)
SHARED_CASES = golden.cases(FOLDER) if FOLDER else []


@dataclass
class Bench:
    """Where one network stands; it is built by the first case that is put to it."""

    filled: Filled
    built: nn.Module | None = None

    def network(self, case: Case) -> nn.Module:
        assert case.filled == self.filled
        if self.built is None:
            self.built = network_of(case).build(case.weights())
        return self.built


@dataclass(frozen=True)
class Trial:
    """A case from the folder of that name, and the mistake that it is to notice, if any."""

    case: Case
    folder: str
    mistake: str = ""

    def __str__(self) -> str:
        return "-".join(part for part in (self.folder, self.case.name, self.mistake) if part)


def of_cases(cases: list[Case], folder: str) -> list[Trial]:
    return [Trial(case, folder) for case in cases]


def of_mistakes(cases: list[Case], folder: str) -> list[Trial]:
    """Every mistake of the folder's sensitivity.json, each put to its case, where it is there."""
    return [
        Trial(case, folder, mistake)
        for case in cases
        for mistake in golden.sensitivity(case.folder).get(case.name, {})
    ]


CASES = [*of_cases(CARRIED_CASES, "carried"), *of_cases(SHARED_CASES, "shared")]
MATCHED = [trial for trial in CASES if trial.case.whole_boxes]
SPOILED = [*of_mistakes(CARRIED_CASES, "carried"), *of_mistakes(SHARED_CASES, "shared")]


@pytest.fixture(scope="module")
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.built = None


def on_benches(trials: list[Trial]) -> pytest.MarkDecorator:
    """The test once for each, with the bench that its network stands on."""
    return pytest.mark.parametrize(
        ("bench", "trial"),
        [pytest.param(trial.case.filled, trial, id=str(trial)) for trial in trials],
        indirect=["bench"],
    )


def check(case: Case, network: nn.Module) -> None:
    wrong = [str(verdict) for verdict in judge(case, network, inputs_of(case)) if not verdict.ok]
    assert not wrong, f"{case.name}: " + "; ".join(wrong)


@on_benches(CASES)
def test_golden_case(bench: Bench, trial: Trial) -> None:
    check(trial.case, bench.network(trial.case))


@on_benches(MATCHED)
def test_golden_boxes_after_matching(bench: Bench, trial: Trial) -> None:
    """Nearly all stored boxes are found, and what is said of them is what was stored."""
    case = trial.case
    with torch.inference_mode():
        got = detector_rows(bench.network(case), inputs_of(case)["image"], case)
    for boxes, wanted in stored_rows(case).items():
        matched = match(case, wanted, got[boxes], boxes)
        assert matched.share >= ENOUGH, f"{case.name}: {matched.share:.0%} of {boxes} found"
        wrong = {name: error for name, error in matched.errors.items() if not error <= case.tolerance(name)}
        assert not wrong, f"{case.name}: {wrong}"


@on_benches(SPOILED)
def test_golden_mistake_turns_its_case_red(
    bench: Bench, trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outputs move as far as the folder says, or less where not all values are kept; beyond the tolerance
    they are wrong."""
    case, network, inputs = trial.case, bench.network(trial.case), inputs_of(trial.case)
    MISTAKES[trial.mistake](monkeypatch, network, inputs)
    verdicts = {verdict.output: verdict for verdict in judge(case, network, inputs)}
    monkeypatch.undo()
    assert not all(verdict.ok for verdict in verdicts.values())
    for output, error in golden.sensitivity(case.folder)[case.name][trial.mistake].items():
        assert verdicts[output].ok == (error <= verdicts[output].tolerance), verdicts[output]
        assert error / 2 - 1e-4 <= verdicts[output].error <= error * 1.1 + 1e-4, verdicts[output]


def test_golden_folder_holds_cases() -> None:
    if FOLDER is None:
        pytest.skip("shared/golden absent")
    assert SHARED_CASES, f"{FOLDER} holds no cases"


@pytest.mark.parametrize("folder", [golden.CARRIED, FOLDER], ids=["carried", "shared"])
def test_golden_rule_is_the_published_one_bit_for_bit(folder: Path | None) -> None:
    if folder is None:
        pytest.skip("shared/golden absent")
    for made in golden.manifest(folder).get("checks", []):
        array = parameter(*made["fill"]) if "fill" in made else made_input(*made["make_input"])
        assert array is not None
        assert array.dtype == made.get("dtype", "float32")
        assert array.ravel()[:4].tolist() == pytest.approx(made["first"])
        little = array.astype(array.dtype.newbyteorder("<"))
        assert hashlib.sha256(little.tobytes()).hexdigest() == made["sha256"]
    assert len(golden.manifest(golden.CARRIED)["checks"]) > 10


def test_golden_rule_leaves_the_networks_own_values_alone() -> None:
    for name in ("bn1.num_batches_tracked", "pixel_mean", "anchor_generator.cell_anchors.0"):
        assert parameter(name, (4,), 7) is None
    assert parameter("scale", (), 7) is None


def test_golden_case_without_its_network_fails() -> None:
    case = Case(golden.CARRIED, {**CARRIED_CASES[0].entry, "network": "a network of nobody"})
    with pytest.raises(NoNetwork, match="a network of nobody"):
        Bench(case.filled).network(case)


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
    case = next(case for case in CARRIED_CASES if "parameters" not in case.entry)
    outputs = {**case.entry["outputs"], "one_more": {"shape": [1]}}
    more = Case(golden.CARRIED, {**case.entry, "outputs": outputs})
    more.__dict__["stored"] = case.stored
    with pytest.raises(AssertionError, match="one_more"):
        check(more, network_of(more).build({}))
