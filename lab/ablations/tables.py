"""Formats results as a markdown table: each row beside the one that it is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lab.ablations.rows import EVAL_SETS, FAMILIES, AblationRow, EvalSet
from lab.ablations.runner import RowResult
from training.scores.bootstrap import Comparison, compare, mean_metric

HEAD = (
    "| row | steps | CIDEr-D, stills | CIDEr-D, shots | difference, stills | difference, shots "
    "| the paper | did it show? |"
)
COLUMNS = HEAD.count("|") - 1


def format_table(results: Mapping[str, Sequence[RowResult]]) -> str:
    """Formats the rows that have a result; the last column is for a person to fill in."""
    lines = [HEAD, "|" + " --- |" * COLUMNS]
    for family in FAMILIES.values():
        rows = [row for row in family.rows if row.name in results]
        if rows:
            lines.append(_join_cells([f"**{family.title}**"] + [""] * (COLUMNS - 1)))
        lines += [_join_cells([row.title, *_format_numbers(row, results), row.paper, ""]) for row in rows]
    return "\n".join(lines)


def _format_numbers(row: AblationRow, results: Mapping[str, Sequence[RowResult]]) -> Iterator[str]:
    of_row, reference = results[row.name], results.get(row.against or "", ())
    yield str(of_row[0].steps or "")
    for name in EVAL_SETS:
        yield _format_scores([float(np.mean(each.scores[name])) for each in of_row if name in each.scores])
    for name in EVAL_SETS:
        yield _format_difference(compare_rows(of_row, reference, name))


def _format_scores(scores: Sequence[float]) -> str:
    if len(scores) < 2:
        return "".join(f"{score:.1f}" for score in scores)
    return f"{np.mean(scores):.1f}; {min(scores):.1f} to {max(scores):.1f} by {len(scores)} seeds"


def _format_difference(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    low, high = comparison.interval
    return f"{comparison.difference:+.1f} ({low:+.1f} to {high:+.1f})"


def _join_cells(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def compare_rows(
    results: Sequence[RowResult], reference: Sequence[RowResult], name: EvalSet
) -> Comparison | None:
    """Compares rows by a paired bootstrap over the judged pictures (training/scores/bootstrap.py).

    With several seeds a picture's score is its mean over them: the interval is of the pictures, not of seeds.

    Args:
        results: of a row, one a seed.
        reference: of the row that it is compared with.
        name: how the pictures were shown.

    Returns:
        CIDEr-D of the row less the reference's, over the seeds that both have; None where they share none.
    """
    sides = [
        {each.seed: each.scores[name] for each in side if name in each.scores}
        for side in (results, reference)
    ]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    if not seeds:
        return None
    first, second = (np.mean([side[seed] for seed in seeds], axis=0) for side in sides)
    return compare(mean_metric("cider", first), mean_metric("cider", second))
