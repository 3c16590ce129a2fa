"""Reads the rows of the papers' ablations (families.toml), and lists what is run of them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter

from extractors.errors import ReelwordError

#: How held-out pictures are shown: each alone, or as one shot of a pseudo-video between others.
EvalSet = Literal["stills", "shots"]
EVAL_SETS: tuple[EvalSet, ...] = ("stills", "shots")
#: Every row is trained with the first; the two headline rows of a family with all.
SEEDS = (2020, 2021, 2022)


class UnknownRow(ReelwordError, ValueError):
    """No family or row has that name; the message says where those there are stand."""

    code = "unknown_row"
    hint = "Choose one of those that --list shows."


class AblationRow(BaseModel):
    """Describes one line of the table: a captioner that is trained, or one that is there already."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    #: What the paper claims, with its figures.
    paper: str
    #: The captioner that is trained.
    trains: str = ""
    #: In place of that: a trained row of the family, or with ``shipped`` a captioner of weights/.
    reads: str = ""
    shipped: bool = False
    #: Whether the caption is written from the memory of the phase ``first_step``, refocus's first look.
    first_step: bool = False
    #: What differs from the demo's configuration, or from that of what is read.
    config: Mapping[str, Any] = {}
    #: Members of the configuration that are None.
    without: tuple[str, ...] = ()
    #: What differs from the ablations' recipe.
    recipe: Mapping[str, Any] = {}
    #: Phase → its share of the steps; cross-entropy has what is left.
    phases: Mapping[str, float] = {}
    #: The row it is compared with; None for what others are compared with.
    against: str | None = None
    #: Whether it is run first, and with every seed.
    headline: bool = False
    eval_sets: tuple[EvalSet, ...] = EVAL_SETS

    @property
    def changes(self) -> dict[str, Any]:
        """The members of the configuration that differ."""
        return {**self.config, **dict.fromkeys(self.without)}


class RowFamily(BaseModel):
    """Holds rows that are compared with each other."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    title: str
    rows: tuple[AblationRow, ...]
    #: The stream set that feeds them all.
    streams: str = "demo"
    #: How many pictures are trained on; None for all there are.
    videos: int | None = None


@dataclass(frozen=True)
class AblationJob:
    """A row with one seed; ``name`` is also its folder's."""

    family: RowFamily
    row: AblationRow
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.seed}"


#: All families by name, in the order in which they are run.
FAMILIES: Mapping[str, RowFamily] = TypeAdapter(dict[str, RowFamily]).validate_python(
    tomllib.loads(Path(__file__).with_name("families.toml").read_text(encoding="utf-8"))
)


def list_jobs(only: str | None = None, names: tuple[str, ...] = ()) -> list[AblationJob]:
    """Lists what is to be run, what matters most first: headline rows, all others, and then further seeds.

    Args:
        only: the name of one family.
        names: of some rows; those that they read come too.

    Raises:
        UnknownRow: no family or row has that name.
    """
    if only is not None and only not in FAMILIES:
        raise UnknownRow(f"no family is called {only!r}; there are: {', '.join(FAMILIES)}")
    pairs = [(f, row) for key, f in FAMILIES.items() if only in (None, key) for row in f.rows]
    rows = {row.name: row for _, row in pairs}
    if unknown := [name for name in names if name not in rows]:
        raise UnknownRow(f"no row is called {unknown[0]!r}; --list shows those there are")
    chosen = {*names, *(rows[name].reads for name in names if not rows[name].shipped)} or set(rows)
    jobs = [
        AblationJob(family, row, seed)
        for family, row in pairs
        if row.name in chosen
        for seed in (SEEDS if row.headline else SEEDS[:1])
    ]
    return sorted(jobs, key=lambda job: (SEEDS.index(job.seed), not job.row.headline))
