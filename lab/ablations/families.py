"""Reads the rows of each paper's ablation (families.toml): what is trained or read, and the paper's claim."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.ablations.row import AblationRow, ReadingSpec, RowFamily, TrainingSpec


def read_families(file: Path) -> tuple[RowFamily, ...]:
    """Returns the families of a file, in the order in which they are run."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return tuple(
        RowFamily(name=name, **{**table, "rows": tuple(_make_row(row) for row in table["rows"])})
        for name, table in tables.items()
    )


def _make_row(table: Mapping[str, Any]) -> AblationRow:
    """Makes a row of its table: ``trains`` names a captioner, ``reads`` other rows or shipped captioners."""
    row = dict(table)
    config = {**row.pop("config", {}), **dict.fromkeys(row.pop("without", ()))}
    if "trains" in row:
        row["make"] = TrainingSpec(row.pop("trains"), config, row.pop("recipe", {}))
    else:
        how, shipped = row.pop("how", "alone"), row.pop("shipped", False)
        row["make"] = ReadingSpec(tuple(row.pop("reads")), how, config, shipped)
    return AblationRow(**row)


#: All families, in the order in which they are run.
FAMILIES = read_families(Path(__file__).with_name("families.toml"))
