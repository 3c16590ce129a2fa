"""The GPU's benchmark takes its way through the code on a CPU, keeps its rows and goes on behind them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.__main__ import Results, Task, list_tasks, run
from benchmarks.gpu.captioners import measure_captions, measure_training
from benchmarks.gpu.measuring import Measuring
from benchmarks.gpu.networks import NetworkCheck
from benchmarks.support.material import smooth_clip
from benchmarks.support.paper_batches import list_paper_captioners
from benchmarks.support.rows import Row
from extractors.extractor import list_extractors
from models.captioners.registry import list_captioners

pytestmark = pytest.mark.slow

CPU = torch.device("cpu")
QUICK = Measuring(CPU, quick=True)


def row(name: str) -> Row:
    return Row("gpu", name, 1.0, "s")


def test_rows_are_kept_and_a_second_run_goes_on_behind_them(tmp_path: Path) -> None:
    done: list[str] = []

    def task(name: str) -> Task:
        def rows() -> list[Row]:
            done.append(name)
            return [row(name), row(f"{name} bf16")]

        return Task(name, rows)

    tasks = [task("a"), task("b"), task("c")]
    assert run(tasks[:1], Results(tmp_path / "gpu.jsonl"), 100) == []
    again = Results(tmp_path / "gpu.jsonl")
    assert [each.name for each in again.rows] == ["a", "a bf16"]
    assert run(tasks, again, 100) == []
    assert done == ["a", "b", "c"]
    assert run([task("d"), task("e")], again, -1) == ["d", "e"]


def test_every_extractor_and_captioner_is_on_the_list(tmp_path: Path) -> None:
    check = NetworkCheck(QUICK, (), tmp_path, torch.zeros(0))
    parts = ("training", "captioners", "clips", "networks")
    names = [each.first for each in list_tasks(parts, (), QUICK, check)]
    # the steps of labelled_stats are those of stats; the transformer is of no paper
    captioners = list_captioners().keys() - {"labelled_stats", "transformer"}
    assert {f"{name} step fp32" for name in captioners} <= set(names)
    assert {f"{name} captions fp32" for name in captioners} <= set(names)
    assert {f"{name} fp32" for name in list_extractors()} <= set(names)
    assert len(names) == len(set(names))
    few = [each.first for each in list_tasks(parts, ("g2l", "resnet50"), QUICK, check)]
    assert few == ["g2l step fp32", "g2l captions fp32", "resnet50 fp32"]


def test_a_captioner_is_measured_in_both_precisions() -> None:
    recipe = list_paper_captioners()["vanilla"]
    captions = list(measure_captions("vanilla", recipe, QUICK))
    steps = list(measure_training("vanilla", recipe, QUICK))
    assert [each.name for each in captions + steps] == [
        *("vanilla captions fp32", "vanilla captions bf16", "vanilla step fp32", "vanilla step bf16"),
        "vanilla loop bf16",
    ]
    assert all(each.ours > 0 for each in captions + steps)
    assert [each.peer for each in steps] == [None, steps[0].ours, steps[1].ours]
    assert all("% of peak" in each.note for each in steps[:2])
    assert "2 videos a step from files" in steps[2].note


def test_a_network_is_compared_with_the_cpu(tmp_path: Path) -> None:
    check = NetworkCheck(QUICK, (("torch", "fp32"), ("torch", "bf16")), tmp_path, smooth_clip())
    exact, half = check.rows("efficientnet-lite2")
    assert exact.name == "efficientnet-lite2 fp32"
    assert "cosine 1.0000" in exact.note
    assert half.ours > 0
    assert half.peer_name == "CPU fp32"
    assert "FAULT" not in exact.note


def test_a_network_that_fails_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check = NetworkCheck(QUICK, (("torch", "fp32"),), tmp_path, smooth_clip())
    monkeypatch.setattr(NetworkCheck, "_speed", lambda *_: 1 / 0)
    (found,) = check.rows("efficientnet-lite2")
    assert "FAULT: ZeroDivisionError" in found.note


def test_operations_are_counted_and_the_peak_is_measured_once() -> None:
    left, right = torch.ones(4, 8), torch.ones(8, 16)
    assert QUICK.count_operations(lambda: left @ right) == 2 * 4 * 8 * 16
    assert QUICK.peak("fp32") == QUICK.peak("fp32") > 0


def test_without_a_gpu_it_says_so_and_ends_well(root: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("a CUDA device would be measured")
    command = [sys.executable, "-m", "benchmarks.gpu"]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "not run: there is no GPU here" in done.stdout
