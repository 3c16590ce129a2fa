"""What a trial measured, and the table of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Finding:
    """One measured promise.

    limit: the most that was promised, None where the number only informs. least: the fewest.
    """

    what: str
    measured: float
    unit: str = ""
    limit: float | None = None
    least: float | None = None

    @property
    def is_kept(self) -> bool:
        is_below = self.limit is None or self.measured <= self.limit
        return is_below and (self.least is None or self.measured >= self.least)

    @property
    def promise(self) -> str:
        bounds = [f"≤ {self.limit:g}"] if self.limit is not None else []
        return " ".join([*bounds, f"≥ {self.least:g}"] if self.least is not None else bounds)

    @property
    def verdict(self) -> str:
        return "" if not self.promise else ("kept" if self.is_kept else "BROKEN")

    def __str__(self) -> str:
        number = f"{self.measured:.2f} {self.unit}" if self.unit else f"{self.measured:g}"
        return f"  {self.what}: {number}   {self.promise} {self.verdict}".rstrip()


def seconds(what: str, measured: float, limit: float | None = None) -> Finding:
    return Finding(what, measured, "s", limit)


def show(trials: Sequence[tuple[str, Sequence[Finding]]]) -> None:
    """Prints the table of all trials."""
    table = Table("trial", "what", "measured", "promised", "", show_edge=False)
    for name, findings in trials:
        for number, finding in enumerate(findings):
            measured = f"{finding.measured:.2f} s" if finding.unit == "s" else f"{finding.measured:g}"
            table.add_row(
                "" if number else name,
                finding.what,
                measured,
                finding.promise,
                finding.verdict,
                style="" if finding.is_kept else "red",
            )
    Console(width=140).print(table)
