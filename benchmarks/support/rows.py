"""Holds what a benchmark found as rows: JSON lines in a file, and one table with the ratio first.

A benchmark makes ``Row`` objects and hands them to ``tell``. It takes the options of ``add_options``:
``--quick`` for fewer repeats, ``--results FILE`` for the file to which its JSON lines are appended.
``python -m benchmarks`` runs a list of benchmarks in this way and prints one table of all their rows.
"""

from __future__ import annotations

import argparse
import json
import operator
import os
import platform
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

Clock = Callable[[], float]
COMPARISONS = {"<=": operator.le, ">=": operator.ge}


@dataclass(frozen=True)
class Row:
    """Holds one measured number beside its peer's of the same run.

    benchmark: the module's last name. name: what was measured. ours: the median. unit: of ours and peer.
    peer: the other's median, None where there is none. peer_name: who that is. better: which numbers are
    better. goal: such as "ratio >= 5" or "ours <= 0.15", empty where there is none. repeats: of each side.
    note: what a reader has to know beside it.
    """

    benchmark: str
    name: str
    ours: float
    unit: str
    peer: float | None = None
    peer_name: str = ""
    better: Literal["less", "more"] = "less"
    goal: str = ""
    repeats: int = 1
    note: str = ""

    def __post_init__(self) -> None:
        self._parse_goal()

    @property
    def ratio(self) -> float | None:
        """How many times better than the peer: above 1 is better, None without a peer."""
        if self.peer is None:
            return None
        over, under = (self.ours, self.peer) if self.better == "more" else (self.peer, self.ours)
        return over / under if under else None

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met, None where there is none or it is about a ratio that is not there."""
        goal = self._parse_goal()
        if goal is None:
            return None
        what, compare, value = goal
        number = self.ratio if what == "ratio" else self.ours
        return None if number is None else compare(number, value)

    def to_json(self) -> str:
        """Returns the row as one line, with its ratio and whether its goal is met."""
        return json.dumps({"ratio": self.ratio, "met": self.is_met, **asdict(self)})

    @classmethod
    def from_json(cls, line: str) -> Row:
        """Reads what ``to_json`` wrote."""
        members = json.loads(line)
        return cls(**{name: members[name] for name in cls.__dataclass_fields__})

    def _parse_goal(self) -> tuple[str, Callable[[float, float], bool], float] | None:
        if not self.goal:
            return None
        what, sign, value = self.goal.split()
        if what not in ("ratio", "ours") or sign not in COMPARISONS:
            raise ValueError(f'a goal is "ratio >= 5" or "ours <= 0.15", not {self.goal!r}')
        return what, COMPARISONS[sign], float(value)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares --quick and --results, which every benchmark of ``python -m benchmarks`` takes."""
    parser.add_argument("--quick", action="store_true", help="fewer repeats, for a busy machine")
    parser.add_argument("--results", type=Path, help="append the rows to this file as JSON lines")


def tell(rows: Iterable[Row], results: Path | None = None) -> None:
    """Appends the rows to a file, or prints them as JSON lines where there is none; then prints a table."""
    listed = list(rows)
    lines = "".join(f"{row.to_json()}\n" for row in listed)
    if results is None:
        print(lines, end="", flush=True)
    else:
        results.parent.mkdir(parents=True, exist_ok=True)
        with results.open("a", encoding="utf-8") as file:
            file.write(lines)
    print_table(listed)


def print_table(rows: Sequence[Row], title: str = "") -> None:
    """Prints one table, the ratio first: above 1 ours is better."""
    table = Table(title=title or f"{machine()}; ratio above 1: ours is better")
    for heading in ("ratio", "benchmark", "what", "ours", "peer", "unit", "peer is", "goal", "met", "note"):
        table.add_column(heading, justify="right" if heading in ("ratio", "ours", "peer") else "left")
    for row in rows:
        met = {None: "", True: "yes", False: "NO"}[row.is_met]
        numbers = [_number(number) for number in (row.ours, row.peer)]
        table.add_row(
            _number(row.ratio),
            row.benchmark,
            row.name,
            *numbers,
            row.unit,
            row.peer_name,
            row.goal,
            met,
            row.note,
        )
    Console(width=None if Console().is_terminal else 200).print(table)


def measure_in_turns(
    ways: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 1, clock: Clock = time.perf_counter
) -> dict[str, list[float]]:
    """Lets all ways take turns, so that a busy moment hurts all alike.

    Args:
        ways: name → what is timed.
        rounds: that count.
        warm_up: rounds before them that do not.
        clock: whose difference is taken; ``cpu_seconds`` is nearly independent of what else runs.

    Returns:
        Name → seconds of each round.
    """
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(warm_up + rounds):
        for name, work in ways.items():
            began = clock()
            work()
            if turn >= warm_up:
                taken[name].append(clock() - began)
    return taken


def medians(taken: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Returns the median of each way."""
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def cpu_seconds() -> float:
    """Returns the processor seconds of this process, its threads, and its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def machine() -> str:
    """Describes the machine in a few words."""
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
