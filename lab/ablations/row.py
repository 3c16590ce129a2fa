"""Defines ablations as values: families of rows, each trained for equal steps or read from trained rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from extractors.errors import ReelwordError
from models.captioner import AnyCaptioner
from models.captioners.registry import find_captioner
from models.vocabulary import Vocabulary
from training.recipes.demo_recipes import DEMO

#: The held-out pictures as stills, or each as one of several shots (corpus.py).
EvalSetName = Literal["stills", "shots"]
EVAL_SETS: tuple[EvalSetName, ...] = ("stills", "shots")
#: Every row is trained with the first; the two headline rows of a family with all.
SEEDS = (2020, 2021, 2022)

#: Small batches, of which a few hundred fit into minutes; half of them stills, the others of 4 or 6 steps.
RECIPE = DEMO.model_copy(
    update={
        "name": "ablation",
        "videos": 16,
        "captions": 5,
        "steps": 300,
        "learning_rate": 1.5e-3,
        "average_decay": 0.99,
        "lengths": (0.5, 0.0, 0.0, 0.25, 0.0, 0.25),
    }
)


@dataclass(frozen=True)
class TrainingSpec:
    """A captioner that is trained; config and recipe: what differs from the demo's and from RECIPE."""

    captioner: str
    config: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)

    def build(self, vocabulary: Vocabulary) -> AnyCaptioner:
        """Builds the captioner with random weights."""
        captioner = find_captioner(self.captioner)
        demo = captioner.make_demo_config()
        config = type(demo).model_validate({**dict(demo), **self.config})
        built: AnyCaptioner = captioner.kind(config, vocabulary)
        return built


@dataclass(frozen=True)
class ReadingSpec:
    """A row that is read from captioners which are there already.

    of: rows of the family, or with ``shipped`` the name of a captioner in weights/. how: "alone" is the one
    there is; "step_1" refocus's first caption; "averaged" the mean of probabilities; "fused" what the
    video-semantic embedding picks, and "judged" what it picks together with how likely all of them find a
    caption. config: what differs from the config that it was trained with.
    """

    of: tuple[str, ...]
    how: Literal["alone", "step_1", "averaged", "fused", "judged"] = "alone"
    config: Mapping[str, Any] = field(default_factory=dict)
    shipped: bool = False


@dataclass(frozen=True)
class AblationRow:
    """One line of the table.

    against: the row it is compared with, None for what others are compared with. paper: what the paper
    claims, with its figures. headline: run first, and with every seed. measures_attention:
    whether its temporal attention is in use. eval_sets: what it is scored on.
    """

    name: str
    title: str
    make: TrainingSpec | ReadingSpec
    paper: str
    against: str | None = None
    headline: bool = False
    measures_attention: bool = True
    eval_sets: Sequence[EvalSetName] = EVAL_SETS

    @property
    def seeds(self) -> tuple[int, ...]:
        return SEEDS if self.headline else SEEDS[:1]


@dataclass(frozen=True)
class RowFamily:
    """Rows that are compared with each other.

    words: the shipped captioner whose words all rows begin with (word_weights.py). streams: the stream set
    that feeds them all. videos: how many are trained on, None for all there are.
    """

    name: str
    title: str
    rows: tuple[AblationRow, ...]
    words: str
    streams: str = "demo"
    videos: int | None = None
    steps: int = RECIPE.steps


@dataclass(frozen=True)
class AblationJob:
    """A row with one seed; ``name`` is also its folder's."""

    family: RowFamily
    row: AblationRow
    seed: int

    @property
    def name(self) -> str:
        return f"{self.row.name}-{self.seed}"


class NotThere(ReelwordError, ValueError):
    """A row's start or source is not there, or does not fit the pictures; the message says which."""

    code = "row_lacks_input"
    hint = "Train or bring what the message names, then run the row again."


class UnknownRow(ReelwordError, ValueError):
    """No family or row has that name; the message lists those there are."""

    code = "unknown_row"
    hint = "Choose one of those that the message lists."


def list_jobs(
    families: Sequence[RowFamily], only: str | None = None, rows: Sequence[str] = ()
) -> list[AblationJob]:
    """Lists what is to be run, what matters most first: headline rows, all others, and then further seeds.

    Args:
        families: all that there are.
        only: the name of one family.
        rows: names of some rows; those that they read come too.

    Raises:
        UnknownRow: no family or row has that name.
    """
    chosen = [family for family in families if only in (None, family.name)]
    if not chosen:
        raise UnknownRow(f"no family is called {only!r}; there are: {', '.join(f.name for f in families)}")
    names = _with_sources(chosen, rows)
    every = [
        AblationJob(f, row, seed) for f in chosen for row in f.rows if row.name in names for seed in row.seeds
    ]
    return sorted(every, key=lambda job: (SEEDS.index(job.seed), not job.row.headline))


def _with_sources(families: Sequence[RowFamily], rows: Sequence[str]) -> set[str]:
    """Returns the names asked for, all where none is, and the rows that they read."""
    rows_by_name = {row.name: row for family in families for row in family.rows}
    if unknown := [name for name in rows if name not in rows_by_name]:
        raise UnknownRow(f"no row is called {unknown[0]!r}; --list shows those there are")
    names = set(rows) or set(rows_by_name)
    for name in rows:
        make = rows_by_name[name].make
        if isinstance(make, ReadingSpec) and not make.shipped:
            names.update(make.of)
    return names
