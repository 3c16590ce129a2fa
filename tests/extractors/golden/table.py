"""The table of docs/results/extractors.md: how far each golden case is off, from a run of all of them.

python -m tests.extractors.golden.table [FOLDER] [--into docs/results/extractors.md]

FOLDER is REELWORD_GOLDEN or ../shared/golden where none is given. With ``--into`` the table takes the place
of the one that the page has between its two marks; without, it is printed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from torch import nn

from tests.extractors.golden import golden
from tests.extractors.golden.golden import Case, Verdict
from tests.extractors.golden.matching import detector_rows, match, stored_rows
from tests.extractors.golden.networks import inputs_of, judge, network_of

BEGIN, END = "<!-- golden table -->", "<!-- end of the golden table -->"
HEADER = "| case | of | outputs | worst | off by | tolerated |\n| --- | --- | --- | --- | --- | --- |\n"


@dataclass(frozen=True)
class Row:
    """A case: verdicts on its outputs, those that are compared after their boxes are matched among them."""

    case: Case
    verdicts: list[Verdict]

    @property
    def worst(self) -> Verdict:
        return max(self.verdicts, key=lambda verdict: verdict.error / verdict.tolerance)

    def __str__(self) -> str:
        worst, source = self.worst, self.case.entry.get("source_repo", "")
        cells = (f"`{self.case.name}`", source, str(len(self.verdicts)), f"`{worst.output}`")
        return f"| {' | '.join(cells)} | {worst.error:.1e} | {worst.tolerance:g} |"


def rows(cases: list[Case]) -> Iterator[Row]:
    """In the order of the cases' networks, one of which is in memory at a time."""
    order = list(dict.fromkeys(case.filled for case in cases))
    for _, of_one in groupby(
        sorted(cases, key=lambda case: order.index(case.filled)), lambda case: case.filled
    ):
        group = list(of_one)
        network = network_of(group[0]).build(group[0].weights())
        yield from (
            Row(case, [*judge(case, network, inputs_of(case)), *after_matching(case, network)])
            for case in group
        )
        del network


def after_matching(case: Case, network: nn.Module) -> list[Verdict]:
    if not case.whole_boxes:
        return []
    with torch.inference_mode():
        got = detector_rows(network, inputs_of(case)["image"], case)
    matches = [match(case, wanted, got[boxes], boxes) for boxes, wanted in stored_rows(case).items()]
    errors = {output: error for matched in matches for output, error in matched.errors.items()}
    return [Verdict(output, error, case.tolerance(output)) for output, error in errors.items()]


def write(page: Path, table: str) -> None:
    before, _, rest = page.read_text("utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{table}\n{END}{after}", "utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", nargs="?", type=Path, default=golden.folder() or golden.CARRIED)
    parser.add_argument("--into", type=Path)
    options = parser.parse_args()
    lines = []
    for row in rows(golden.cases(options.folder)):
        lines.append(str(row))
        print(lines[-1], flush=True)
    if options.into:
        write(options.into, HEADER + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
