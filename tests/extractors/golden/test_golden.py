"""Our networks against the public ones, output by output, under weights that anybody can make.

Cases, the boxes of detectors and known mistakes stand in the order of their networks, so that each network is
built once and only one is in memory.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from tests.extractors.golden import golden
from tests.extractors.golden.golden import Case, Filled
from tests.extractors.golden.matching import ENOUGH, Match, Rows, detector_rows, match, stored_rows
from tests.extractors.golden.mistakes import MISTAKES
from tests.extractors.golden.networks import NoNetwork, inputs_of, judge, network_of
from tests.extractors.golden.rule import made_input, parameter

pytestmark = pytest.mark.slow

FOLDER = golden.folder()
CARRIED_CASES = golden.cases(golden.CARRIED)
SHARED_CASES = golden.cases(FOLDER) if FOLDER else []


@dataclass
class Bench:
    """Where one network stands until a case of another is put to it."""

    filled: Filled | None = None
    built: nn.Module | None = None

    def network(self, case: Case) -> nn.Module:
        if self.built is None or self.filled != case.filled:
            self.built = None  # before the next, for two are more than they need be
            self.built, self.filled = network_of(case).build(case.weights()), case.filled
        return self.built


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.built = None


def check_case(case: Case, network: nn.Module, _patch: pytest.MonkeyPatch) -> None:
    wrong = [str(verdict) for verdict in judge(case, network, inputs_of(case)) if not verdict.ok]
    assert not wrong, f"{case.name}: " + "; ".join(wrong)


def check_boxes(case: Case, network: nn.Module, _patch: pytest.MonkeyPatch) -> None:
    """Nearly all stored boxes are found, and what is said of them is what was stored."""
    with torch.inference_mode():
        got = detector_rows(network, inputs_of(case)["image"], case)
    for boxes, wanted in stored_rows(case).items():
        matched = match(case, wanted, got[boxes], boxes)
        assert matched.share >= ENOUGH, f"{case.name}: {matched.share:.0%} of {boxes} found"
        wrong = {name: error for name, error in matched.errors.items() if not error <= case.tolerance(name)}
        assert not wrong, f"{case.name}: {wrong}"


def check_mistake(mistake: str, case: Case, network: nn.Module, patch: pytest.MonkeyPatch) -> None:
    """Outputs move as far as the folder says, or less where not all values are kept; beyond the tolerance
    they are wrong."""
    inputs = inputs_of(case)
    with patch.context() as taken_back:
        MISTAKES[mistake](taken_back, network, inputs)
        verdicts = {verdict.output: verdict for verdict in judge(case, network, inputs)}
    assert not all(verdict.ok for verdict in verdicts.values())
    for output, error in golden.sensitivity(case.folder)[case.name][mistake].items():
        assert verdicts[output].ok == (error <= verdicts[output].tolerance), verdicts[output]
        assert error / 2 - 1e-4 <= verdicts[output].error <= error * 1.1 + 1e-4, verdicts[output]


@dataclass(frozen=True)
class Trial:
    """A case and what is asked of it."""

    case: Case
    name: str
    check: Callable[[Case, nn.Module, pytest.MonkeyPatch], None]

    def __str__(self) -> str:
        return self.name


def trials(cases: list[Case], folder: str) -> Iterator[Trial]:
    """Of each case itself, its boxes where it has any, and each mistake that it must notice."""
    for case in cases:
        name = f"{folder}-{case.name}"
        yield Trial(case, name, check_case)
        if case.whole_boxes:
            yield Trial(case, f"{name}-boxes", check_boxes)
        for mistake in golden.sensitivity(case.folder).get(case.name, {}):
            yield Trial(case, f"{name}-{mistake}", partial(check_mistake, mistake))


def by_network(unordered: list[Trial]) -> list[Trial]:
    """Networks in the order in which they come first."""
    networks = list(dict.fromkeys(trial.case.filled for trial in unordered))
    return sorted(unordered, key=lambda trial: networks.index(trial.case.filled))


TRIALS = by_network([*trials(CARRIED_CASES, "carried"), *trials(SHARED_CASES, "shared")])


@pytest.mark.parametrize("trial", TRIALS, ids=str)
def test_golden(trial: Trial, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    trial.check(trial.case, bench.network(trial.case), monkeypatch)


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
        Bench().network(case)


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


def test_golden_case_with_an_output_that_nobody_makes_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in CARRIED_CASES if "parameters" not in case.entry)
    outputs = {**case.entry["outputs"], "one_more": {"shape": [1]}}
    more = Case(golden.CARRIED, {**case.entry, "outputs": outputs})
    more.__dict__["stored"] = case.stored
    with pytest.raises(AssertionError, match="one_more"):
        check_case(more, network_of(more).build({}), monkeypatch)


def test_golden_boxes_are_matched_by_place_and_class() -> None:
    """Another order is none of its mistakes; a box elsewhere, another class and another score are."""
    entry = {
        "outputs": {name: {"shape": [], "step": 1, "absmax": 1.0} for name in ("det_boxes", "det_scores")}
    }
    case = Case(golden.CARRIED, entry)
    boxes, classes = torch.tensor([[0.0, 0, 10, 10], [5, 5, 30, 20], [5, 5, 30, 20]]), torch.tensor([1, 2, 3])
    scores = {"det_scores": torch.tensor([0.9, 0.8, 0.7])}
    stored, order = Rows(boxes, classes, scores), [2, 0, 1]

    def put(boxes: torch.Tensor, classes: torch.Tensor, scores: torch.Tensor) -> Match:
        return match(case, stored, Rows(boxes, classes, {"det_scores": scores}), "det_boxes")

    other = put(boxes[order], classes[order], scores["det_scores"][order])
    assert (other.share, *other.errors.values()) == (1, 0, 0)
    assert put(boxes + 2, classes, scores["det_scores"]).share == 0
    assert put(boxes, torch.tensor([1, 2, 2]), scores["det_scores"]).share == pytest.approx(2 / 3)
    off = put(boxes, classes, scores["det_scores"] + 0.5)
    assert off.errors["det_scores"] == pytest.approx(0.5)


def test_golden_folder_may_hold_a_few_cases_and_no_mistakes(tmp_path: Path) -> None:
    """And sensitivity.json may speak of cases that are not there."""
    few = [case for case in CARRIED_CASES if case.name.startswith(("vggish_n", "preprocess_i3d"))]
    manifest = {"cases": [case.entry for case in few]}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    for case in few:
        for part in {case.entry["file"], case.entry.get("parameters", case.entry["file"])}:
            (tmp_path / part).parent.mkdir(exist_ok=True)
            shutil.copyfile(golden.CARRIED / part, tmp_path / part)
    assert len(list(trials(golden.cases(tmp_path), "few"))) == len(few)
    shutil.copyfile(golden.CARRIED / "sensitivity.json", tmp_path / "sensitivity.json")
    assert len(list(trials(golden.cases(tmp_path), "few"))) == len(few) + 2
