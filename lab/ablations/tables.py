"""Formats results as two markdown tables: scores, and where words looked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from lab.ablations.results import RowResult
from lab.ablations.row import EVAL_SETS, AblationRow, EvalSetName, RowFamily
from training.scores.bootstrap import Comparison, Floats, compare, mean_metric

Found = Mapping[str, Sequence[RowResult]]

SCORES = (
    "| row | steps | CIDEr-D, stills | CIDEr-D, shots | difference, stills | difference, shots "
    "| the paper | did it show? |"
)
LOOKS = "| row | what is on the true shot | % | by chance, % | above chance | above the middle frame |"
#: What is measured, in the words of the table.
MEASURES = {
    "attention": "the attention of a true caption's words",
    "word_frame": "the frame that each of them attends to most",
    "selected": "the key frames chosen for them",
    "key_frame": "the predicted key frame",
}


def format_tables(families: Sequence[RowFamily], found: Found) -> str:
    """Formats both tables, of rows that have a result; the last column is for a person to fill in."""
    parts = [(SCORES, _format_scores(families, found)), (LOOKS, _format_attention_rows(families, found))]
    return "\n\n".join("\n".join([head, _make_rule(head), *lines]) for head, lines in parts)


def _make_rule(head: str) -> str:
    return "|" + " --- |" * (head.count("|") - 1)


def _format_scores(families: Sequence[RowFamily], found: Found) -> Iterator[str]:
    for family in families:
        rows = [row for row in family.rows if row.name in found]
        if rows:
            yield _join_cells([f"**{family.title}**"] + [""] * (SCORES.count("|") - 2))
        for row in rows:
            yield _join_cells([row.title, *_format_numbers(row, found), row.paper, ""])


def _format_numbers(row: AblationRow, found: Found) -> list[str]:
    results = found[row.name]
    scores = ["; ".join(_format_score(results, eval_set)) for eval_set in EVAL_SETS]
    reference = found.get(row.against or "", ())
    differences = [_format_difference(compare_cider(results, reference, eval_set)) for eval_set in EVAL_SETS]
    return [str(results[0].steps or ""), *scores, *differences]


def _format_score(results: Sequence[RowResult], eval_set: str) -> Iterator[str]:
    scores = [
        float(np.mean(result.scores[eval_set].cider)) for result in results if eval_set in result.scores
    ]
    if scores:
        yield f"{np.mean(scores):.1f}"
    if len(scores) > 1:
        yield f"{min(scores):.1f} to {max(scores):.1f} by {len(scores)} seeds"


def _format_attention_rows(families: Sequence[RowFamily], found: Found) -> Iterator[str]:
    for family in families:
        for row in family.rows:
            for result in found.get(row.name, ())[:1]:
                yield from _format_attention(row, result)


def _format_attention(row: AblationRow, result: RowResult) -> Iterator[str]:
    """Yields the lines of a row, without what is chance by construction, or always the middle frame."""
    shares_by_name = result.scores["shots"].attention_shares if "shots" in result.scores else {}
    for name, title in MEASURES.items():
        shares, middle = shares_by_name.get(name), shares_by_name.get("middle")
        by_construction = shares_by_name.get("chance"), middle if name == "key_frame" else None
        if shares is None or shares in by_construction:
            continue
        above = compare_shares(shares, shares_by_name["chance"])
        than_middle = compare_shares(shares, middle) if name == "key_frame" and middle else None
        numbers = [f"{100 * np.mean(values):.1f}" for values in (shares, shares_by_name["chance"])]
        yield _join_cells(
            [row.title, title, *numbers, _format_difference(above), _format_difference(than_middle)]
        )


def _format_difference(comparison: Comparison | None) -> str:
    if comparison is None:
        return ""
    low, high = comparison.interval
    return f"{comparison.difference:+.1f} ({low:+.1f} to {high:+.1f})"


def _join_cells(values: Sequence[str]) -> str:
    return f"| {' | '.join(values)} |"


def compare_cider(
    results: Sequence[RowResult], reference: Sequence[RowResult], eval_set: EvalSetName
) -> Comparison | None:
    """Compares rows by paired bootstraps over the held-out pictures (training/scores/bootstrap.py).

    With several seeds an item's score is its mean over them: the interval is of the pictures, not of seeds.

    Args:
        results: of a row, one a seed.
        reference: of the row that it is compared with.
        eval_set: which pictures.

    Returns:
        CIDEr-D of the row less the reference's, over the seeds that both have; None where they share none.
    """
    ours, theirs = _sort_by_seed(results, eval_set), _sort_by_seed(reference, eval_set)
    seeds = sorted(ours.keys() & theirs.keys())
    if not seeds:
        return None
    first, second = (np.mean([side[seed] for seed in seeds], axis=0) for side in (ours, theirs))
    return compare(mean_metric("cider", first), mean_metric("cider", second))


def compare_shares(first: Sequence[float], second: Sequence[float]) -> Comparison:
    """Compares, in per cent, the mean of the first shares with that of the second, item by item."""
    return compare(mean_metric("share", 100 * np.array(first)), mean_metric("share", 100 * np.array(second)))


def _sort_by_seed(results: Sequence[RowResult], eval_set: EvalSetName) -> dict[int, Floats]:
    return {r.seed: np.array(r.scores[eval_set].cider) for r in results if eval_set in r.scores}
