"""Rows of benchmarks keep their ratio, say whether a goal is met, and come back from their JSON."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.support.rows import Row, measure_in_turns, medians, tell


def test_a_ratio_above_one_is_better_whichever_numbers_are_better() -> None:
    assert Row("a", "seconds", 2.0, "s", 6.0).ratio == 3.0
    assert Row("a", "clips a second", 6.0, "1/s", 2.0, better="more").ratio == 3.0
    assert Row("a", "alone", 6.0, "s").ratio is None


def test_goals_are_about_the_ratio_or_about_our_number() -> None:
    assert Row("a", "b", 2.0, "s", 6.0, goal="ratio >= 3").is_met is True
    assert Row("a", "b", 2.0, "s", 6.0, goal="ratio >= 3.1").is_met is False
    assert Row("a", "b", 0.2, "s", goal="ours <= 0.15").is_met is False
    assert Row("a", "b", 0.2, "s", goal="ratio >= 3").is_met is None
    assert Row("a", "b", 0.2, "s").is_met is None


@pytest.mark.parametrize("goal", ["peer <= 3", "ours = 3"])
def test_a_goal_that_nobody_can_judge_is_refused(goal: str) -> None:
    with pytest.raises(ValueError, match="a goal is"):
        Row("a", "b", 1.0, "s", goal=goal)


def test_rows_are_appended_as_lines_and_read_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [Row("a", "one", 2.0, "s", 6.0, "plain loop", goal="ratio >= 3"), Row("a", "two", 1.0, "MiB")]
    for row in rows:
        tell([row], tmp_path / "out" / "rows.jsonl")
    lines = (tmp_path / "out" / "rows.jsonl").read_text(encoding="utf-8").splitlines()
    assert [Row.from_json(line) for line in lines] == rows
    assert "plain loop" in capsys.readouterr().out


def test_ways_take_turns_and_the_first_round_does_not_count() -> None:
    order: list[str] = []
    taken = measure_in_turns(
        {"a": lambda: order.append("a"), "b": lambda: order.append("b")}, 2, clock=lambda: float(len(order))
    )
    assert order == list("ababab")
    assert taken == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert medians({"a": [3.0, 1.0, 2.0]}) == {"a": 2.0}
