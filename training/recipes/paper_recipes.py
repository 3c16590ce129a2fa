"""Lists how the papers trained their captioners: recipe, epochs, widths, streams and set of each.

``--recipe paper-msvd`` and its like name a set; what is done with it depends on the captioner, whose
captioner.toml has its paper's numbers. Where they give none: batches of 32 captions, Adam, gradients clipped
at 5, 30 epochs of which the best by validation are kept, captions of at most 19 words and an end (longer ones
are cut and ended), searched with a beam of 5 by log-probability over length ** 0.7, where a word may come
twice; weights are chosen by the same search that ``evaluate`` makes at the end. An epoch is every caption
once, each with its video.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from models.captioners.registry import CaptionerFolder, RegisteredCaptioner, list_folders
from models.decoding.options import DecodingOptions
from models.stream_set import StreamSet
from training.recipes.demo_recipes import DEMO, UnknownRecipe
from training.recipes.recipe import CONSTANT, Recipe


@dataclass(frozen=True)
class PaperRun:
    """One captioner's training as its paper did it, on one set."""

    recipe: Recipe  #: whose ``epochs`` say how long its phases are
    config: Callable[[StreamSet], BaseModel]  #: from the stream set that feeds the captioner
    streams: str
    data_set: str  #: set in training.datasets that it trains on
    paper: str  #: whose splits and words of the set
    row: str = ""  #: of the paper's table with its scores, where it is not the paper's full model


#: What the papers share or leave open. Lengths of pseudo-videos are not read: these are real ones.
PAPER = DEMO.model_copy(
    update={
        "name": "paper",
        "videos": 32,
        "captions": 1,
        "max_length": 20,
        "keep_end": True,
        "every_caption": True,
        "optimizer": "adam",
        "betas": (0.9, 0.999),
        "schedule": CONSTANT,
        "warmup": 0,
        "weight_decay": 0.0,
        "clip": 5.0,
        "smoothing": 0.0,
        "auxiliary_weight": 0.0,
        "forcing_eta": None,
        "average_decay": 0.0,
        "steps": 0,
        "self_critical_steps": 0,
        "validate_every": 0,
        "self_critical_every": 0,
        "self_critical_captions": 1,
        "self_critical_temperature": 1.0,
        "decoding": DecodingOptions(name_once=False),
    }
)


class RunTable(BaseModel, frozen=True, extra="forbid"):
    """Holds what a captioner.toml says of one way in which the paper trained, on one set or several."""

    #: The sets, each a run of its own.
    data_sets: tuple[str, ...]
    #: What the recipe's name has after the set's.
    suffix: str = ""
    #: Members of the configuration that differ from the paper's usual ones.
    config: Mapping[str, Any] = {}
    #: Members of the configuration that are None.
    without: tuple[str, ...] = ()
    #: Numbers of the recipe that differ from the paper's usual ones.
    recipe: Mapping[str, Any] = {}
    #: Phase → how many epochs it has, where these differ from the paper's usual ones.
    epochs: Mapping[str, float] | None = None
    #: The row of the paper's table with its scores, where it is not the paper's full model.
    row: str = ""


class PaperTable(BaseModel, frozen=True, extra="forbid"):
    """Holds what a captioner.toml says of its paper's training."""

    #: Whose stream set feeds it, and whose splits and words the sets have.
    name: str
    #: The numbers in which its recipe differs from PAPER.
    recipe: Mapping[str, Any] = {}
    #: Phase → how many epochs it has.
    epochs: Mapping[str, float]
    runs: tuple[RunTable, ...]


def list_paper_runs() -> dict[tuple[str, str], PaperRun]:
    """Lists what the captioners' papers did, by recipe and captioner."""
    tables = ((folder, folder.description.paper) for folder in list_folders())
    return {
        (run.recipe.name, captioner): run
        for folder, table in tables
        if table is not None
        for captioner, run in _list_runs(folder, PaperTable.model_validate(table))
    }


def _list_runs(folder: CaptionerFolder, paper: PaperTable) -> Iterator[tuple[str, PaperRun]]:
    for captioner in folder.kinds:
        for table in paper.runs:
            config = _make_config(RegisteredCaptioner(captioner, folder), table)
            for data_set in table.data_sets:
                named = {
                    "name": f"paper-{data_set}{table.suffix}",
                    "epochs": table.epochs or paper.epochs,
                }
                recipe = Recipe.model_validate(
                    {**PAPER.model_dump(), **paper.recipe, **table.recipe, **named}
                )
                yield captioner, PaperRun(recipe, config, paper.name, data_set, paper.name, table.row)


def _make_config(captioner: RegisteredCaptioner, table: RunTable) -> Callable[[StreamSet], BaseModel]:
    """Makes what builds the paper's configuration for a stream set."""
    changes = {**table.config, **dict.fromkeys(table.without)}

    def make(streams: StreamSet) -> BaseModel:
        fitted = captioner.fit(captioner.kind.config_class(), streams)
        return type(fitted).model_validate({**dict(fitted), **changes})

    return make


def list_paper_names() -> tuple[str, ...]:
    """Lists the papers' recipes by name."""
    return tuple(dict.fromkeys(recipe for recipe, _ in list_paper_runs()))


def find_paper_run(recipe: str, captioner: str) -> PaperRun:
    """Returns what the captioner's paper did. Raises UnknownRecipe where it has no such set."""
    runs = list_paper_runs()
    if (recipe, captioner) not in runs:
        whose = ", ".join(who for name, who in runs if name == recipe)
        recipes = ", ".join(name for name, who in runs if who == captioner) or "none"
        raise UnknownRecipe(
            f"the paper of {captioner} has no {recipe}, which is for: {whose}; {captioner} has: {recipes}"
        )
    return runs[recipe, captioner]
