"""Lists the rows of the papers' tables at the papers' widths: ``python -m lab ablate --papers``.

Each is a recipe (``[[paper.runs]]`` with a ``row`` in a captioner.toml); docs/reproduce.md has the scores.
"""

from __future__ import annotations

from collections.abc import Iterator

from training.recipes.paper_recipes import list_paper_runs


def list_commands() -> Iterator[str]:
    """Yields for each row its name, the command that trains it, and the one that scores it."""
    for (recipe, captioner), run in list_paper_runs().items():
        if not run.row:
            continue
        out, data = f"runs/{recipe}-{captioner}", run.data_set.upper()
        yield f"# {captioner}, {data}. {run.row}"
        yield f"reelword train {captioner} --recipe {recipe} --data {data} --out {out}"
        scored = f"--data {data} --data-set {run.data_set} --paper {run.paper} --split test"
        yield f"reelword evaluate {out}/best.safetensors {scored}"
