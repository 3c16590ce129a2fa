"""The tables say what the results hold, and the command says what it cannot do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from lab.__main__ import lab
from lab.ablations.families import FAMILIES
from lab.ablations.results import AblationPlan, AblationResults, AnotherPlan, EvalSetScores, RowResult
from lab.ablations.row import list_jobs
from lab.ablations.tables import compare_cider, format_tables

N = 40
EASY = np.random.default_rng(1).normal(40, 20, N)


def result(
    name: str,
    gain: float = 0.0,
    seed: int = 2020,
    steps: int | None = 600,
    looked: Mapping[str, float] | None = None,
) -> RowResult:
    """As good as EASY on stills and by ``gain`` better on shots, where shares are the same for every item."""
    shares = {key: (share,) * N for key, share in (looked or {}).items()}
    scores = {
        eval_set: EvalSetScores(
            captions=("a man",) * N,
            cider=tuple((EASY + more).tolist()),
            attention_shares=shares if eval_set == "shots" else {},
        )
        for eval_set, more in (("stills", 0.0), ("shots", gain))
    }
    return RowResult(row=name, seed=seed, steps=steps, seconds=1, parameters=9, scores=scores)


def cells(text: str, title: str) -> list[list[str]]:
    """The lines whose first cell begins with the title."""
    lines = [line.strip()[1:-1].split("|") for line in text.splitlines()]
    return [[cell.strip() for cell in line] for line in lines if line[0].strip().startswith(title)]


def test_a_row_is_compared_with_its_reference_picture_by_picture() -> None:
    found = {"stats": [result("stats")], "stats-st": [result("stats-st", gain=-3)]}
    [line] = cells(format_tables(FAMILIES, found), "ST alone")
    mean = f"{EASY.mean():.1f}"
    assert line[:4] == ["ST alone (mean + ranked pooling)", "600", mean, f"{EASY.mean() - 3:.1f}"]
    assert line[4:6] == ["+0.0 (+0.0 to +0.0)", "-3.0 (-3.0 to -3.0)"]
    [reference] = cells(format_tables(FAMILIES, found), "STaTS: both")
    assert reference[4:6] == ["", ""]


def test_only_seeds_that_both_have_are_compared() -> None:
    ours = [result("a", 5, seed=1), result("a", 50, seed=2)]
    found = compare_cider(ours, [result("b", seed=1)], "shots")
    assert found is not None
    assert found.difference == pytest.approx(5)
    assert compare_cider(ours[1:], [result("b", seed=1)], "shots") is None
    both = compare_cider(ours, [result("b", seed=1), result("b", seed=2)], "shots")
    assert both is not None
    assert both.difference == pytest.approx(27.5)


def test_seeds_and_missing_steps_are_told() -> None:
    found = {"g2l": [result("g2l", gain, seed) for seed, gain in ((2020, 0), (2021, 4), (2022, 2))]}
    text = format_tables(FAMILIES, found)
    [line] = cells(text, "global, aligned, 2")
    low = EASY.mean()
    assert line[3] == f"{low + 2:.1f}; {low:.1f} to {low + 4:.1f} by 3 seeds"


def test_where_words_looked_leaves_out_what_is_chance_by_construction() -> None:
    looked = {"chance": 0.4, "attention": 0.7, "word_frame": 0.4, "key_frame": 0.6, "middle": 0.5}
    text = format_tables(FAMILIES, {"refocus": [result("refocus", looked=looked)]})
    lines = [line for line in cells(text, "VRE: both") if len(line) == 6]
    assert [line[1:4] for line in lines] == [
        ["the attention of a true caption's words", "70.0", "40.0"],
        ["the predicted key frame", "60.0", "40.0"],
    ]
    assert lines[1][4:] == ["+20.0 (+20.0 to +20.0)", "+10.0 (+10.0 to +10.0)"]


def test_a_key_frame_that_is_always_the_middle_is_not_told() -> None:
    looked = {"chance": 0.4, "attention": 0.7, "key_frame": 0.5, "middle": 0.5}
    text = format_tables(FAMILIES, {"refocus-plain": [result("refocus-plain", looked=looked)]})
    assert "predicted key frame" not in text


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(lab, ["ablate", *arguments])
    return done.exit_code, done.output


def test_the_command_prints_what_the_folder_holds(tmp_path: Path) -> None:
    results = AblationResults(tmp_path)
    results.follow(AblationPlan(steps=600))
    job = next(job for job in list_jobs(FAMILIES) if job.row.name == "stats-ts")
    results.save(job, result("stats-ts"))
    code, text = run("--table", "--out", str(tmp_path))
    assert code == 0
    assert len(cells(text, "TS alone")) == 1
    assert cells(text, "ST alone") == []


def test_results_keep_the_names_that_their_files_have_had(tmp_path: Path) -> None:
    """So that rows of an older version are still in the table."""
    job = next(job for job in list_jobs(FAMILIES) if job.row.name == "stats-ts")
    results = AblationResults(tmp_path)
    written = result("stats-ts", looked={"chance": 0.4})
    results.save(job, written)
    [file] = tmp_path.glob("*.json")
    document = json.loads(file.read_text())
    assert document["sheets"]["shots"].keys() == {"captions", "cider", "looked"}
    assert results.load([job])["stats-ts"] == [written]


def test_the_command_lists_every_row() -> None:
    code, text = run("--list")
    assert code == 0
    assert len(text.splitlines()) == len(list_jobs(FAMILIES))
    assert len(run("--list", "--only", "fusion")[1].splitlines()) == len(list_jobs(FAMILIES, "fusion"))


def test_the_command_refuses_what_it_cannot_do(tmp_path: Path) -> None:
    assert run("--rows", "g3l", "--list")[0] == 2
    assert run("--out", str(tmp_path))[0] == 2
    AblationResults(tmp_path / "out").follow(AblationPlan(steps=9, words=True))
    given = ("--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert run(*given, "--steps", "8")[0] == 2
    assert run(*given, "--steps", "9", "--cache", str(tmp_path))[0] == 2


def test_a_folder_from_before_there_were_words_is_of_another_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"steps": 9, "judged": 500, "teachers": []}')
    AblationResults(tmp_path).follow(AblationPlan(steps=9))
    with pytest.raises(AnotherPlan):
        AblationResults(tmp_path).follow(AblationPlan(steps=9, words=True))


def test_a_teacher_that_is_not_there_leaves_no_plan(tmp_path: Path) -> None:
    """So that the command can be given again as it was meant."""
    code, text = run("--data", str(tmp_path), "--out", str(tmp_path / "out"), "--teacher", "nobody")
    assert code == 2
    assert "there is no captioner 'nobody'" in " ".join(text.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
